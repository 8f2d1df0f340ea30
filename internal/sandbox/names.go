package sandbox

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// Words that are short, told apart by ear, and describe no person.
var (
	adjectives = strings.Fields(
		`able agile amber apt arctic bold brave brisk calm candid clear clever cosmic crisp curious daring deft eager early
		fair fleet fluent fond frank fresh gentle giddy glad golden grand happy hardy hazel honest humble ideal jolly keen kind lively
		loyal lucid lucky mellow merry mild modest neat nimble noble opal patient placid plucky polite prime proud quick quiet ready
		rosy royal sage silver sincere sleek smooth snug solar solid spry stable steady sturdy sunny swift tidy trusty vivid warm wise witty young zesty`)
	animals = strings.Fields(
		`badger bat bear beaver bee bison bobcat camel cat cobra condor coral crab crane cricket crow deer dingo dolphin dove duck
		eagle eel egret elk falcon ferret finch fox frog gecko gibbon goat goose gopher hare hawk hen heron horse hound ibex ibis
		jackal jay kite kiwi koala lark lemur lion lizard llama lynx magpie marten mole moose moth mouse newt ocelot okapi oriole otter owl
		panda parrot pelican pony puffin puma quail rabbit raven robin seal shark shrew skunk sloth snail sparrow squid stork swan
		tapir tiger toad trout turtle viper walrus weasel whale wolf wombat wren yak zebra`)
)

// madeUpName returns a name for a sandbox; after a few that were taken, with a number.
func madeUpName(try int) string {
	name := adjectives[rand.IntN(len(adjectives))] + "-" + animals[rand.IntN(len(animals))]
	if try > 3 {
		name += "-" + strconv.Itoa(2+rand.IntN(998))
	}
	return name
}
