//go:build !purego && !race

package transport

import "golang.org/x/sys/cpu"

// fourAtATime: the loops over lists exist in a form for AVX2, which the race detector
// couldn't look into.
var fourAtATime = cpu.X86.HasAVX2

// eightAtATime: where there are registers twice as long, and no lower clock for using
// them, as there was in the first processors that had them.
var eightAtATime = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VBMI2

// writeSGEs4 writes SGEs for groups of four pieces in a region, adds up their lengths, and
// finds the least. end is where the piece before ended. If bad isn't zero, some piece is
// not as most are (or the region is larger than a quarter of all addresses), and the rest
// means nothing.
//
//go:noescape
func writeSGEs4(dst *SGE, list *Piece, groups int, e *RegionEntry, end uint64) (total, least, bad uint64)

// checkPages4 is zero if all pieces of groups of four are whole pages of a region. first
// is where its first page is, last where its last is, counted from there; word is its id,
// above the length of a page, and inPage the bits of an address in a page.
//
//go:noescape
func checkPages4(list *Piece, groups int, first, last, word, inPage uint64) (bad uint64)

// writePages4 writes the addresses of groups of four pieces. It is zero if each is a
// whole page.
//
//go:noescape
func writePages4(pages *uint64, list *Piece, groups int, page uint64) (bad uint64)
