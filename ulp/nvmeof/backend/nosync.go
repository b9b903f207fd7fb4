//go:build nosync

package backend

// durable is described in sync.go.
const durable = false
