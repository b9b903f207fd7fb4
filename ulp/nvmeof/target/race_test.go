//go:build race

package target

// raced tells that the race detector watches, which allocates.
const raced = true
