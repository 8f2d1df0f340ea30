#include "interval.h"

#include <algorithm>

std::vector<Interval> merged(std::vector<Interval> all)
{
	std::sort(all.begin(), all.end());
	std::vector<Interval> out;
	for (const Interval &i : all) {
		if (!out.empty() && i.first <= out.back().second)
			out.back().second = std::max(out.back().second, i.second);
		else
			out.push_back(i);
	}
	return out;
}
