#include "interval.h"

#include <gtest/gtest.h>

using Intervals = std::vector<Interval>;

TEST(Merged, Apart) { EXPECT_EQ(merged({{5, 6}, {1, 2}}), (Intervals{{1, 2}, {5, 6}})); }
TEST(Merged, Touching) { EXPECT_EQ(merged({{1, 2}, {2, 3}}), (Intervals{{1, 3}})); }
TEST(Merged, Within) { EXPECT_EQ(merged({{1, 9}, {2, 3}}), (Intervals{{1, 9}})); }
