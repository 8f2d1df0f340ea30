package cove

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestUserAsJSON(t *testing.T) {
	other := User{UID: 1001, GID: 50, Groups: "4,7", Name: "vscode", Home: "/home/vscode", Shell: "/bin/bash"}
	for u, want := range map[User]string{
		CodeUser: `"code"`, AgentUser: `"agent"`, // as records of every version have them
		other: `{"UID":1001,"GID":50,"Groups":"4,7","Name":"vscode","Home":"/home/vscode","Shell":"/bin/bash"}`,
	} {
		text, err := json.Marshal(u)
		if err != nil || string(text) != want {
			t.Errorf("%+v is %s, %v", u, text, err)
		}
		var back User
		if err := json.Unmarshal(text, &back); err != nil || back != u {
			t.Errorf("%s is %+v, %v", text, back, err)
		}
	}
	if !other.IsOfImage() || AgentUser.IsOfImage() || RootUser.IsOfImage() || (User{}).IsOfImage() ||
		!slices.Equal(other.GroupIDs(), []int{4, 7}) || CodeUser.GroupIDs() != nil {
		t.Error("users of images and their groups are not told")
	}
	var u User
	if err := json.Unmarshal([]byte(`""`), &u); err != nil || u != CodeUser {
		t.Errorf("an empty word is %+v, %v", u, err)
	}
	if err := json.Unmarshal([]byte(`"other"`), &u); ErrorCode(err) != Corrupt {
		t.Errorf("an unknown word: %v", err)
	}
}
