package command

import (
	"slices"
	"strings"
)

// words are operands that name nothing.
func words(j *judge) error {
	if len(j.s.paths) > 0 {
		return invalid("'git %s' takes no paths", j.s.verb.name)
	}
	j.revs = j.s.operands
	return nil
}

// patterns choose among the names of branches that there are.
func patterns(j *judge) error { return words(j) }

// names are files, not pathspecs.
func names(j *judge) error {
	for _, name := range slices.Concat(j.s.operands, j.s.paths) {
		checked, err := j.inside(name)
		if err != nil {
			return err
		}
		j.paths = append(j.paths, checked)
	}
	return nil
}

// blame is [REVISION] FILE.
func blame(j *judge) error {
	operands, file := j.s.operands, j.s.paths
	if !j.s.dashes && len(operands) > 0 {
		operands, file = operands[:len(operands)-1], operands[len(operands)-1:]
	}
	if len(file) != 1 || len(operands) > 1 {
		return invalid("usage: git %s [<options>] [<rev>] [--] <file>", j.s.verb.name)
	}
	if err := j.addRevisions(operands); err != nil {
		return err
	}
	checked, err := j.inside(file[0])
	j.paths = []string{checked}
	return err
}

// grep is PATTERN [REVISION…] [FILE…].
func grep(j *judge) error {
	pattern := []string(nil)
	if !j.s.has("-e") {
		if len(j.s.operands) == 0 {
			return invalid("no pattern given")
		}
		if pattern = []string{"-e" + j.s.operands[0]}; j.s.operands[0] == "" {
			pattern = []string{"-e", ""}
		}
		j.s.operands = j.s.operands[1:]
	}
	if err := history(j); err != nil {
		return err
	}
	j.revs = append(pattern, j.revs...)
	return nil
}

// tree is REVISION [FILE…].
func tree(j *judge) error {
	if len(j.s.operands) == 0 {
		return invalid("usage: git ls-tree [<options>] <tree-ish> [<path>...]")
	}
	if err := j.addRevisions(j.s.operands[:1]); err != nil {
		return err
	}
	j.bare = true
	if err := j.addPaths(slices.Concat(j.s.operands[1:], j.s.paths)); err != nil {
		return err
	}
	for _, name := range j.paths {
		j.revs = append(j.revs, pathOnly(name))
	}
	return nil
}

// object is one object, after its type unless an option says what of it is asked.
func object(j *judge) error {
	operands := j.s.operands
	if len(operands) == 2 && slices.Contains([]string{"blob", "tree", "commit", "tag"}, operands[0]) {
		j.revs, operands = operands[:1:1], operands[1:]
	}
	if len(operands) != 1 || len(j.s.paths) > 0 {
		return invalid("usage: git cat-file (-t | -s | -e | -p | <type>) <object>")
	}
	return j.addRevisions(operands)
}

// question is options and revisions, each of which is answered where it stands.
func question(j *judge) error {
	if len(j.s.paths) > 0 {
		return invalid("'git rev-parse' takes no paths here")
	}
	for _, it := range j.s.order {
		if it.option != nil {
			j.revs = append(j.revs, it.option.written())
			continue
		}
		word := it.operand
		if err := j.see(word); err != nil && j.s.has("--verify") && refName(word) {
			// which is not there, and git says so as its caller expects
			word = "refs/unseen/" + strings.TrimPrefix(word, "refs/unseen/")
		} else if err != nil {
			return err
		}
		j.revs = append(j.revs, word)
	}
	return nil
}

// symbolic reads what a name stands for.
func symbolic(j *judge) error {
	if len(j.s.operands) != 1 || len(j.s.paths) > 0 {
		return forbidden("'git symbolic-ref' only reads here: git symbolic-ref HEAD")
	}
	if name := j.s.operands[0]; name != "HEAD" && name != "refs/remotes/"+remoteName+"/HEAD" {
		return j.unseen(name)
	}
	return words(j)
}

// reflog is of HEAD, the sandbox's own branch, and the stash.
func reflog(j *judge) error {
	for _, name := range j.s.operands {
		full, ok := j.ref(name)
		if base, _, logged := strings.Cut(name, "@{"); logged {
			full, ok = j.ref(base)
		}
		if !ok || full != "HEAD" && full != "@" && full != "refs/stash" && full != "refs/heads/"+j.Branch {
			return forbidden("the log of '%s' is not this sandbox's", name).
				WithHint("it may read those of HEAD and %s", j.Branch)
		}
	}
	j.words = []string{"reflog", "show"}
	return history(j)
}

// attributes is ATTRIBUTE… [--] FILE….
func attributes(j *judge) error {
	operands, files := j.s.operands, j.s.paths
	if !j.s.dashes {
		n := min(1, len(operands))
		if j.s.has("--all") {
			n = 0
		}
		operands, files = operands[:n], operands[n:]
	}
	j.revs, j.s.dashes = operands, true
	for _, name := range files {
		checked, err := j.inside(name)
		if err != nil {
			return err
		}
		j.paths = append(j.paths, checked)
	}
	return nil
}

// setting reads one.
func setting(j *judge) error {
	j.dropped = []string{"--local", "--global", "--system"} // there is one set of settings
	switch {
	case len(j.s.operands) > 1:
		return forbidden("settings of the repository are not this sandbox's to change").
			WithHint("set it for all of the sandbox: git config --global %s VALUE", j.s.operands[0])
	case len(j.s.operands) == 0 || len(j.s.paths) > 0:
		return invalid("usage: git config [--get] <name>")
	case !j.Readable(j.s.operands[0]):
		return forbidden("the setting '%s' cannot be read in this sandbox", j.s.operands[0])
	}
	return words(j)
}

// remote is the one remote.
func remote(j *judge) error {
	if len(j.s.operands) != 1 || j.s.operands[0] != remoteName {
		return invalid("No such remote '%s'", strings.Join(j.s.operands, " "))
	}
	return words(j)
}

// tags lists them.
func tags(j *judge) error {
	if len(j.s.operands) > 0 && !j.s.has("--list", "--contains", "--no-contains", "--merged", "--no-merged",
		"--points-at", "-n") {
		return forbidden("tags are not made or changed in this sandbox")
	}
	return words(j)
}

// branch lists them.
func branch(j *judge) error {
	if len(j.s.operands) > 0 && !j.s.has("--list", "--contains", "--no-contains", "--merged", "--no-merged",
		"--points-at") {
		return forbidden("branches are not made or changed in this sandbox: its work is on '%s'", j.Branch)
	}
	return words(j)
}

// creation judges options that make a branch: only the sandbox's own may be put somewhere else.
func (j *judge) creation(names ...string) (found bool, err error) {
	g, ok := j.s.get(names...)
	if !ok {
		return false, nil
	}
	if g.value != j.Branch {
		return true, forbidden("the branch '%s' cannot be made: this sandbox's work is on '%s'", g.value, j.Branch)
	}
	return true, nil
}

// standing judges where HEAD may go: to the sandbox's own branch, or to a commit without a branch.
func (j *judge) standing(word string, detached bool) error {
	if word == "-" {
		return nil
	}
	if err := j.see(word); err != nil {
		return err
	}
	full, _ := j.ref(word)
	if name, ok := strings.CutPrefix(full, "refs/heads/"); ok && !detached && name != j.Branch {
		return forbidden("this sandbox's work is on '%s', and not on '%s'", j.Branch, name).
			WithHint("look at it with: git switch --detach %s", name)
	}
	return nil
}

func switchTo(j *judge) error {
	if len(j.s.operands) > 1 || len(j.s.paths) > 0 {
		return invalid("only one reference expected")
	}
	made, err := j.creation("--create", "--force-create")
	if err != nil {
		return err
	}
	for _, word := range j.s.operands {
		if err := j.standing(word, made || j.s.has("--detach")); err != nil {
			return err
		}
	}
	j.revs = j.s.operands
	return nil
}

// checkout is switching, or [REVISION] FILE….
func checkout(j *judge) error {
	made, err := j.creation("-b", "-B")
	if err != nil {
		return err
	}
	operands, paths := j.s.operands, j.s.paths
	if !j.s.dashes && len(operands) > 0 && operands[0] != "-" {
		probe := *j
		if probe.see(operands[0]) != nil {
			operands, paths = nil, operands
		} else {
			operands, paths = operands[:1], operands[1:]
		}
	}
	if len(operands) > 1 {
		return invalid("only one reference expected, %d given", len(operands))
	}
	for _, word := range operands {
		if err := j.standing(word, made || len(paths) > 0 || j.s.has("--detach")); err != nil {
			return err
		}
	}
	j.revs = operands
	if err := j.addPaths(paths); err != nil || j.s.dashes {
		return err
	}
	for _, name := range j.paths { // git says how many it has checked out
		j.revs = append(j.revs, pathOnly(name))
	}
	j.paths = nil
	return nil
}

func merge(j *judge) error {
	if len(j.s.operands) > 1 {
		return forbidden("only one branch at a time is merged in this sandbox")
	}
	return revisionsOnly(j)
}

// rebase is [UPSTREAM [BRANCH]].
func rebase(j *judge) error {
	if len(j.s.operands) > 2 {
		return invalid("usage: git rebase [options] [--onto <newbase>] [<upstream> [<branch>]]")
	}
	if len(j.s.operands) == 2 {
		if full, _ := j.ref(j.s.operands[1]); full != "refs/heads/"+j.Branch {
			return forbidden("the branch '%s' is not this sandbox's, which is '%s'", j.s.operands[1], j.Branch)
		}
	}
	return revisionsOnly(j)
}

// pick is commits, unless one goes on.
func pick(j *judge) error {
	if len(j.s.operands) == 0 && !j.s.has("--continue", "--skip", "--abort", "--quit") {
		return invalid("usage: git %s [<options>] <commit>...", j.s.verb.name)
	}
	return revisionsOnly(j)
}

func stashPush(j *judge) error {
	if j.s.verb.name == "stash" && len(j.s.operands) > 0 {
		return forbidden("'git stash %s' is not allowed in this sandbox", j.s.operands[0])
	}
	j.words = []string{"stash", "push"}
	return files(j)
}

// stashed is one entry of the stash.
func stashed(j *judge) error {
	if len(j.s.operands) > 1 || len(j.s.paths) > 0 {
		return invalid("Too many revisions specified: %s", strings.Join(j.s.operands, " "))
	}
	for _, word := range j.s.operands {
		number := strings.Trim(word, "0123456789") == ""
		if rest, ok := strings.CutPrefix(word, "stash@{"); !number &&
			(!ok || strings.Trim(strings.TrimSuffix(rest, "}"), "0123456789") != "") && word != "stash" {
			return invalid("'%s' is not a stash reference", word)
		}
	}
	j.revs = j.s.operands
	return nil
}

// patch is a file, or standard input.
func patch(j *judge) error {
	if n := slices.Concat(j.s.operands, j.s.paths); len(n) > 1 {
		return forbidden("only one patch at a time is applied in this sandbox")
	}
	j.revs, j.s.paths, j.bare = []string{"-"}, nil, true
	return nil
}

// mailbox is a file of patches, or standard input, unless they were read before.
func mailbox(j *judge) error {
	if j.s.has(amState...) {
		return nothing(j)
	}
	return patch(j)
}

// formatPatch is commits, and then paths. Patches are written into the workspace, or to standard output.
func formatPatch(j *judge) error {
	if j.s.has("--stdout") {
		j.effect = Reads
	}
	return history(j)
}

// archive is REVISION [FILE…], unless the formats are listed. It goes to standard output.
func archive(j *judge) error {
	if j.s.has("--list") {
		return nothing(j)
	}
	if len(j.s.operands) == 0 {
		return invalid("usage: git archive [<options>] <tree-ish> [<path>...]")
	}
	return tree(j)
}

// submodules lists the submodules at paths. The command of git is a script, which runs this helper.
func submodules(j *judge) error {
	j.words = []string{"submodule--helper", "status"}
	return files(j)
}

// to takes the name of the remote from the operands and returns the rest.
func (j *judge) to() (rest []string, err error) {
	if len(j.s.paths) > 0 {
		j.s.operands = append(j.s.operands, j.s.paths...)
	}
	j.bare = true
	if len(j.s.operands) == 0 {
		return nil, nil
	}
	if j.s.operands[0] != remoteName {
		return nil, forbidden("'%s' is not the remote of this sandbox, which is '%s'", j.s.operands[0], remoteName)
	}
	j.revs = []string{remoteName}
	return j.s.operands[1:], nil
}

// fetch is [origin [REFSPEC…]].
func fetch(j *judge) error {
	specs, err := j.to()
	if err != nil {
		return err
	}
	for i := 0; i < len(specs); i++ {
		if specs[i] == "tag" && i+1 < len(specs) {
			if i++; !refName(specs[i]) {
				return invalid("invalid refspec '%s'", specs[i])
			}
			j.revs = append(j.revs, "tag", specs[i])
			continue
		}
		if err := j.fetched(specs[i]); err != nil {
			return err
		}
		j.revs = append(j.revs, specs[i])
	}
	return nil
}

// fetched judges one refspec. What is fetched goes to where git keeps what it knows of the remote, or nowhere.
func (j *judge) fetched(spec string) error {
	source, target, has := strings.Cut(strings.TrimPrefix(spec, "+"), ":")
	if source == "refs/tags/*" && (!has || target == source) {
		return nil
	}
	if name, ok := strings.CutPrefix(source, "refs/tags/"); ok && refName(name) && (!has || target == source) {
		return nil
	}
	name := strings.TrimPrefix(strings.TrimPrefix(source, "refs/"), "heads/")
	if !(j.branch(name) || source == "HEAD" && !has) {
		return j.unseen(source)
	}
	if has && target != "refs/remotes/"+remoteName+"/"+name && target != "remotes/"+remoteName+"/"+name {
		return forbidden("'%s' cannot be fetched to '%s' in this sandbox", source, target).
			WithHint("fetch it to refs/remotes/%s/%s", remoteName, name)
	}
	return nil
}

// pull is fetch, and then one branch is merged.
func pull(j *judge) error {
	if err := fetch(j); err != nil {
		return err
	}
	if len(j.revs) > 2 {
		return forbidden("only one branch at a time is pulled in this sandbox")
	}
	return nil
}

// push is [origin [REFSPEC]], onto the sandbox's own branch.
func push(j *judge) error {
	specs, err := j.to()
	if err != nil {
		return err
	}
	j.dropped = []string{"--set-upstream"} // it is set
	if g, ok := j.s.get("--force", "--force-with-lease", "--force-if-includes"); ok && !j.Force {
		return forbidden("'%s' is not allowed in this sandbox", g.name()).WithHint("its branch only goes forward")
	}
	if g, ok := j.s.get("--force-with-lease"); ok && g.with {
		name, expected, _ := strings.Cut(g.value, ":")
		if full, _ := j.ref(name); full != "refs/heads/"+j.Branch || expected != "" && !isHex(expected) {
			return forbidden("'%s' is about another branch than this sandbox's", g.value)
		}
	}
	for _, spec := range specs {
		written, err := j.pushed(spec)
		if err != nil {
			return err
		}
		j.revs = append(j.revs, written)
	}
	return nil
}

func (j *judge) pushed(spec string) (string, error) {
	plain := strings.TrimPrefix(spec, "+")
	if plain != spec && !j.Force {
		return "", forbidden("'%s' would push with force, which is not allowed in this sandbox", spec).
			WithHint("its branch only goes forward")
	}
	own := "refs/heads/" + j.Branch
	source, target, has := strings.Cut(plain, ":")
	switch {
	case source == "" && has:
		return "", forbidden("'%s' would delete or choose branches, which is not allowed in this sandbox", spec)
	case !has && (source == "HEAD" || source == "@"):
		return spec, nil // to a branch of the name that HEAD has, which is its own
	case !has:
		target = source
	}
	if full, ok := j.ref(target); !ok || full != own {
		return "", forbidden("'%s' is not this sandbox's branch, which is '%s'", target, j.Branch)
	}
	if err := j.see(source); err != nil {
		return "", err
	}
	return strings.TrimSuffix(spec, plain) + source + ":" + own, nil
}

// lsRemote is [origin [PATTERN…]].
func lsRemote(j *judge) error {
	specs, err := j.to()
	if err != nil {
		return err
	}
	j.revs = append([]string{remoteName}, specs...)
	return nil
}
