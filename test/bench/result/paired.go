package result

import (
	"fmt"
	"math"
	"slices"
)

// Comparison is what paired runs of two builds say about one scenario. Ratios are new to old: above 1 the new one is
// slower.
type Comparison struct {
	Scenario   string
	Pairs      int
	Old, New   float64 // medians
	Ratio      float64 // the median of the pairs' ratios
	Low, High  float64 // between these is the ratio, with the confidence asked for
	Conclusion Conclusion
}

// Conclusion is what a comparison has found.
type Conclusion string

// The conclusions.
const (
	Slower    Conclusion = "SLOWER"
	Faster    Conclusion = "faster"
	Same      Conclusion = "same"
	Undecided Conclusion = "undecided: more pairs"
)

// Compare compares samples that were taken in pairs. It finds a regression where the ratio is at least threshold (1.1
// for ten percent) and its interval leaves out 1; equality where the interval leaves out a change of that size in
// either direction.
func Compare(scenario string, before, after []float64, threshold, confidence float64) Comparison {
	n := min(len(before), len(after))
	ratios := make([]float64, n)
	for i := range n {
		ratios[i] = after[i] / before[i]
	}
	c := Comparison{Scenario: scenario, Pairs: n, Old: Quantile(before[:n], 0.5), New: Quantile(after[:n], 0.5),
		Ratio: middle(ratios), Conclusion: Undecided}
	c.Low, c.High = Interval(ratios, confidence)
	switch {
	case c.Ratio >= threshold && c.Low > 1:
		c.Conclusion = Slower
	case c.Ratio <= 1/threshold && c.High < 1:
		c.Conclusion = Faster
	case c.Low > 1/threshold && c.High < threshold:
		c.Conclusion = Same
	}
	return c
}

// middle returns the median; of an even number of samples, the geometric mean of the two in the middle, so that the
// ratio of A to B is the inverse of that of B to A.
func middle(samples []float64) float64 {
	if len(samples) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(samples))
	return math.Sqrt(sorted[(len(sorted)-1)/2] * sorted[len(sorted)/2])
}

// Interval returns a confidence interval of the median of what samples are drawn from: the medians that a two-sided
// sign test does not reject. It is exact and assumes nothing about the distribution. Too few samples for the confidence
// say nothing: the interval is everything from 0 to infinity.
func Interval(samples []float64, confidence float64) (low, high float64) {
	n := len(samples)
	// Of n samples, the number below the median is binomial: the k-th from either end is beyond it with the
	// probability that fewer than k are.
	k, beyond := 0, 0.0
	for k < n/2 {
		beyond += binomial(n, k)
		if beyond > (1-confidence)/2 {
			break
		}
		k++
	}
	if k == 0 {
		return 0, math.Inf(1)
	}
	sorted := slices.Sorted(slices.Values(samples))
	return sorted[k-1], sorted[n-k]
}

// binomial is the probability of k heads in n throws of a coin.
func binomial(n, k int) float64 {
	all, _ := math.Lgamma(float64(n + 1))
	heads, _ := math.Lgamma(float64(k + 1))
	tails, _ := math.Lgamma(float64(n - k + 1))
	return math.Exp(all - heads - tails - float64(n)*math.Ln2)
}

func (c Comparison) String() string {
	return fmt.Sprintf("%-52s %9s %9s %8.3f [%.3f, %.3f] %4d  %s", c.Scenario, Figure(c.Old), Figure(c.New), c.Ratio,
		c.Low, c.High, c.Pairs, c.Conclusion)
}
