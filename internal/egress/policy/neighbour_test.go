package policy

import "testing"

func TestNeighbour(t *testing.T) {
	names := []string{"cache", "db"}
	for _, c := range []struct {
		host     string
		endpoint bool
		want     bool
	}{
		{"db", false, true}, {"DB.", false, true}, {"cache", false, true}, {"db", true, false}, {"d", false, false},
		{"db.example", false, false}, {"other", false, false}, {"127.0.0.1", false, false}, {GatewayService, false, false},
		{HostService, false, false},
	} {
		h, err := ParseHost(c.host)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range []Request{{Layer: LayerDNS}, {Layer: LayerConnect, Port: 5432}, {Layer: LayerDial, Port: 5432},
			{Layer: LayerHTTP, Port: 80, Method: "GET", Path: "/"}} {
			r.Host, r.Endpoint = h, c.endpoint
			v, ok := Neighbour(names, r)
			if ok != c.want || ok && (v.Action != Allow || !v.PassThrough || !v.Neighbour || v.Rule != "service "+h.Name()) {
				t.Errorf("%s, %+v: %+v, %v", c.host, r, v, ok)
			}
			if v, ok := Neighbour(nil, r); ok {
				t.Errorf("without neighbours: %s: %+v", c.host, v)
			}
		}
	}
	if v, ok := Neighbour([]string{""}, Request{Layer: LayerConnect, Port: 1}); ok {
		t.Errorf("no host: %+v", v)
	}
}
