package api

// GatewayRegistration asks a gateway of its own ("cove gateway") for a way out.
type GatewayRegistration struct {
	Name string `json:"name" pattern:"^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$" example:"builder" doc:"What the client is known by"`
	GatewayPolicy
	Credentials []string `json:"credentials,omitempty" doc:"Names of credentials of the machine: they are set on requests by the gateway, and the client has placeholders"`
	ModelPermission
	Listen      string `json:"listen,omitempty" example:"127.0.0.1:3129" doc:"Where the client's own proxy listens: HOST:PORT of loopback (port 0: any that is free, kept from then on) or unix:/PATH; 127.0.0.1:0 without it"`
	Transparent bool   `json:"transparent,omitempty" doc:"The client hands over sockets of its network namespace instead (POST /clients/{name}/sockets)"`
	Dir         string `json:"dir,omitempty" doc:"Where the client sees the directory of its files; without it where the gateway has it"`
}

// GatewayClient is a client that a gateway knows.
type GatewayClient struct {
	GatewayRegistration
	Sandbox string            `json:"sandbox" doc:"The client's identity, which decisions are recorded under"`
	Open    bool              `json:"open" doc:"Whether its egress route is open: a transparent client's is while \"cove gateway attach\" holds its sockets"`
	Files   string            `json:"files" doc:"Directory on the gateway's machine with what the client is to trust: ca.pem, and ca-certificates.crt with all roots"`
	Env     map[string]string `json:"env" doc:"Environment that leads programs to the way out and has them trust it"`
	Problem string            `json:"problem,omitempty" doc:"Why there is no way out, if there is none"`
	Models  []ModelUsage      `json:"models,omitempty" doc:"What it has used of models since the gateway was started"`
	Cut     int               `json:"cut,omitempty" doc:"Connections and requests that a change no longer allowed, and were cut"`
}

// GatewayClientList is every client of a gateway, by name.
type GatewayClientList struct {
	Clients []GatewayClient `json:"clients"`
}

// GatewayHealth describes the health of a gateway.
type GatewayHealth struct {
	Status  string `json:"status" enum:"ok,closing"`
	Version string `json:"version"`
	Clients int    `json:"clients" doc:"Registered ones"`
	Open    int    `json:"open" doc:"Ways out that are open"`
}

// SocketsProtocol names the protocol of a connection that hands over sockets, in its Upgrade header.
const SocketsProtocol = "cove-sockets"
