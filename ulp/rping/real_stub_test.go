//go:build !(ibverbs && linux && cgo)

package rping

func realPlaces() []place { return nil }
