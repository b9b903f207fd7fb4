//go:build race

package backend

// raced tells that the race detector watches, which allocates.
const raced = true
