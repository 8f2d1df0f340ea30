package archtest

import (
	"maps"
	"slices"
	"testing"
)

// circular lists the edges of a graph that lie in circles, in order: those between
// two nodes of one strongly connected component.
func circular(graph map[string][]string) [][2]string {
	in := components(graph)
	var edges [][2]string
	for _, from := range slices.Sorted(maps.Keys(graph)) {
		for _, to := range slices.Sorted(slices.Values(graph[from])) {
			if in[from] == in[to] {
				edges = append(edges, [2]string{from, to})
			}
		}
	}
	return edges
}

// components numbers the strongly connected components of a graph (Tarjan, 1972).
func components(graph map[string][]string) map[string]int {
	index, low, in := map[string]int{}, map[string]int{}, map[string]int{}
	var stack []string
	var visit func(node string)
	visit = func(node string) {
		index[node] = len(index) + 1
		low[node] = index[node]
		stack = append(stack, node)
		for _, next := range graph[node] {
			if index[next] == 0 {
				visit(next)
				low[node] = min(low[node], low[next])
			} else if in[next] == 0 {
				low[node] = min(low[node], index[next])
			}
		}
		if low[node] != index[node] {
			return
		}
		for done := false; !done; {
			last := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			in[last] = index[node]
			done = last == node
		}
	}
	for _, node := range slices.Sorted(maps.Keys(graph)) {
		if index[node] == 0 {
			visit(node)
		}
	}
	return in
}

func TestCircular(t *testing.T) {
	graph := map[string][]string{
		"top": {"a", "bottom"}, "a": {"b"}, "b": {"c", "bottom"}, "c": {"a"},
		"left": {"right"}, "right": {"left", "bottom"},
	}
	want := [][2]string{{"a", "b"}, {"b", "c"}, {"c", "a"}, {"left", "right"}, {"right", "left"}}
	if got := circular(graph); !slices.Equal(got, want) {
		t.Errorf("circular = %v, want %v", got, want)
	}
	if got := circular(map[string][]string{"a": {"b", "c"}, "b": {"c"}}); len(got) != 0 {
		t.Errorf("a graph without circles has %v", got)
	}
}
