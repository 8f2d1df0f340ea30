#pragma once
#include <utility>
#include <vector>

using Interval = std::pair<int, int>; // from the first up to, and without, the second

// merged returns intervals sorted, with those that touch as one.
std::vector<Interval> merged(std::vector<Interval> all);
