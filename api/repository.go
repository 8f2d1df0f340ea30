package api

import "time"

// StoredRepository is a repository in the store: what sandboxes of it borrow
// their objects from.
type StoredRepository struct {
	Source    string    `json:"source" doc:"Address, or directory" example:"https://github.com/owner/repo.git"`
	Name      string    `json:"name" doc:"What the store keeps it under" example:"github.com/owner/repo"`
	Size      int64     `json:"size" doc:"Bytes on disk"`
	FetchedAt time.Time `json:"fetched_at"`
	Sandboxes []string  `json:"sandboxes" nullable:"false" doc:"Ids of those that borrow from it"`
}

// StoredRepositories is the answer of GET /repositories.
type StoredRepositories struct {
	Repositories []StoredRepository `json:"repositories" nullable:"false"`
}

// RepositoryName names a repository: POST /repositories, POST /repositories/collect.
type RepositoryName struct {
	Source string `json:"source" doc:"OWNER/REPO, an HTTPS address, a directory, or its name in the store"`
}

// EventFetched is the last event of POST /repositories that succeeded: a
// StoredRepository.
const EventFetched = "fetched"
