//go:build !amd64 || purego || race

package transport

const fourAtATime = false

var eightAtATime bool

func writeSGEs4(*SGE, *Piece, int, *RegionEntry, uint64) (total, least, bad uint64) { return 0, 0, 1 }

func checkPages4(*Piece, int, uint64, uint64, uint64, uint64) (bad uint64) { return 1 }

func writePages4(*uint64, *Piece, int, uint64) (bad uint64) { return 1 }
