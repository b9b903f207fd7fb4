//go:build !race

package target

// raced is described in race_test.go.
const raced = false
