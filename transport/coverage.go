package transport

import "math"

// Extent is what a registration covers of a list.
type Extent struct {
	// IOVA is the address of the first byte in terms of the registration's keys.
	IOVA uint64
	// Len is the length in bytes.
	Len uint64
	// Pages is how many entries of the page list are used. For devices with
	// gaps, one per contiguous element.
	Pages int
	// Next is where in the list the coverage ends.
	Next Cursor
}

// Contiguous computes what one SyncMR or Window can cover: the bytes from a
// position on that follow each other in one region, at most limit (zero: no
// limit). Pages is 1 unless nothing is left of the list.
func Contiguous(list []Piece, from Cursor, limit uint64) Extent {
	if limit == 0 {
		limit = ^uint64(0)
	}
	ext := Extent{Next: from}
	var region RegionID
	for ext.Next.Piece < len(list) && ext.Len < limit {
		p := list[ext.Next.Piece]
		if ext.Next.Offset >= p.Len {
			ext.Next = Cursor{Piece: ext.Next.Piece + 1}
			continue
		}
		addr := p.Addr + uint64(ext.Next.Offset)
		switch {
		case ext.Len == 0:
			ext.IOVA, ext.Pages, region = addr, 1, p.Region
		case addr != ext.IOVA+ext.Len || p.Region != region:
			return ext
		}
		take := min(uint64(p.Len-ext.Next.Offset), limit-ext.Len)
		ext.Len += take
		ext.Next.Offset += uint32(take)
		if ext.Next.Offset == p.Len {
			ext.Next = Cursor{Piece: ext.Next.Piece + 1}
		}
	}
	return ext
}

// Coverage computes what one fast registration can cover: of list, from a
// position on, at most limit bytes (zero: no limit), with pages of 2^shift bytes
// and at most maxPages of them. It is the one place that knows the rule, used
// by the planner to count and by transports to map.
//
// The rule is the kernel's (ib_sg_to_pages): the first piece may start and the
// last may end anywhere; in between, a piece either goes on at the very byte
// where the one before ended, or both ends lie on page borders. Where that does
// not hold there is a gap, and the coverage ends before it. With gaps set
// (SG_GAPS) every contiguous element takes one entry and there is no such rule.
//
// Unlike the kernel's, the coverage may end inside a piece, on a page border,
// when the page list is full: a piece larger than a registration is legal.
// Empty pieces are skipped. The list is not checked against its regions.
func Coverage(list []Piece, from Cursor, limit uint64, shift uint8, maxPages int, gaps bool) (ext Extent) {
	ext.Next = from
	if limit == 0 {
		limit = ^uint64(0)
	}
	if gaps {
		ext.coverElements(list, limit, maxPages)
	} else {
		ext.coverPages(nil, list, limit, shift, maxPages)
	}
	return ext
}

// PageList computes what [Coverage] does for len(pages) pages without gaps, and
// writes down the address of each page that is covered.
func PageList(pages []uint64, list []Piece, from Cursor, limit uint64, shift uint8) (ext Extent) {
	if limit == 0 {
		limit = ^uint64(0)
	}
	if from.Offset == 0 && from.Piece < len(list) { // what is left is one page in each piece, mostly
		rest := list[from.Piece:]
		n := int(min(uint64(len(pages)), uint64(len(rest)), limit>>shift))
		all := n == len(rest) || n == len(pages) && rest[n].Len > 0 || uint64(n)<<shift == limit
		if all && n > 0 && onePageEach(pages[:n], rest[:n], 1<<shift) {
			ext.IOVA = rest[0].Addr
			ext.Len = uint64(n) << shift
			ext.Pages = n
			ext.Next.Piece = from.Piece + n
			return ext
		}
	}
	return pageList(pages, list, from, limit, shift)
}

// pageList is PageList for any list.
func pageList(pages []uint64, list []Piece, from Cursor, limit uint64, shift uint8) (ext Extent) {
	ext.Next = from
	ext.coverPages(pages, list, limit, shift, len(pages))
	return ext
}

// coverElements extends ext as devices with gaps do.
func (ext *Extent) coverElements(list []Piece, limit uint64, maxPages int) {
	var end uint64 // address after the last byte covered
	for ext.Next.Piece < len(list) && ext.Len < limit {
		p := list[ext.Next.Piece]
		if ext.Next.Offset >= p.Len {
			ext.Next = Cursor{Piece: ext.Next.Piece + 1}
			continue
		}
		addr := p.Addr + uint64(ext.Next.Offset)
		if ext.Len == 0 || addr != end {
			if ext.Pages == maxPages {
				return
			}
			ext.Pages++
		}
		if ext.Len == 0 {
			ext.IOVA = addr
		}
		take := min(uint64(p.Len-ext.Next.Offset), limit-ext.Len)
		ext.Len += take
		end = addr + take
		ext.Next.Offset += uint32(take)
		if ext.Next.Offset == p.Len {
			ext.Next = Cursor{Piece: ext.Next.Piece + 1}
		}
	}
}

// coverPages extends ext as other devices do. If pages isn't nil it is filled, and
// holds maxPages.
func (ext *Extent) coverPages(pages []uint64, list []Piece, limit uint64, shift uint8, maxPages int) {
	shift &= 63 // which spares the compiler larger shifts
	page := uint64(1) << shift
	inPage := page - 1
	var end uint64  // address after the last byte covered
	var room uint64 // bytes after end that the last page still holds
	for ext.Next.Piece < len(list) && ext.Len < limit {
		if room == 0 && ext.Next.Offset == 0 { // at a page border, unless at the start
			most := min(uint64(maxPages-ext.Pages), (limit-ext.Len)>>shift, math.MaxInt64>>shift)
			pieces, used := wholePages(pages, ext.Pages, list[ext.Next.Piece:], shift, most)
			if pieces > 0 {
				if ext.Len == 0 {
					ext.IOVA = list[ext.Next.Piece].Addr
				}
				ext.Next.Piece += pieces
				ext.Pages += int(used)
				ext.Len += used << shift
				end = list[ext.Next.Piece-1].End()
				continue
			}
		}
		p := list[ext.Next.Piece]
		if ext.Next.Offset >= p.Len {
			ext.Next = Cursor{Piece: ext.Next.Piece + 1}
			continue
		}
		addr := p.Addr + uint64(ext.Next.Offset)
		if ext.Len > 0 && addr != end {
			if (addr|end)&inPage != 0 {
				return
			}
			room = 0
		}
		n := min(uint64(p.Len-ext.Next.Offset), limit-ext.Len)
		lead := addr & inPage // of the first page, before addr
		if room > 0 {
			lead = 0 // it was counted with the bytes before
		}
		fit := room
		if free := uint64(maxPages - ext.Pages); free > 0 {
			fit += free<<shift - lead
		}
		take := min(n, fit)
		if take == 0 {
			return
		}
		if take > room {
			fresh := take - room + lead
			used := (fresh + inPage) >> shift
			if pages != nil {
				first := (addr + room) &^ inPage
				for i := range used {
					pages[ext.Pages+int(i)] = first + i<<shift
				}
			}
			ext.Pages += int(used)
			room = used<<shift - fresh
		} else {
			room -= take
		}
		if ext.Len == 0 {
			ext.IOVA = addr
		}
		ext.Len += take
		end = addr + take
		ext.Next.Offset += uint32(take)
		if ext.Next.Offset == p.Len {
			ext.Next = Cursor{Piece: ext.Next.Piece + 1}
		} else if take < n {
			return
		}
	}
}

// wholePages counts how many pieces, one after the other, are whole pages: what the
// lists of storage are made of, and quicker to tell than anything else is. most is
// how many pages it may use; it writes them down from pages[at] on, unless pages is
// nil.
func wholePages(pages []uint64, at int, list []Piece, shift uint8, most uint64) (pieces int, used uint64) {
	if pages == nil {
		return countWhole(list, shift, most)
	}
	pages = pages[at:][:most]
	page := uint64(1) << (shift & 63)
	for i := range list {
		p := &list[i]
		n := uint64(p.Len)
		if (p.Addr|n)&(page-1) != 0 || n == 0 {
			return i, used
		}
		n >>= shift & 63
		if n > most-used {
			return i, used
		}
		for j := range n {
			pages[used] = p.Addr + j*page
			used++
		}
	}
	return len(list), used
}

// countWhole is wholePages without the pages.
func countWhole(list []Piece, shift uint8, most uint64) (pieces int, used uint64) {
	page := uint64(1) << (shift & 63)
	room := most << (shift & 63) // in bytes
	left := room
	for i := range list {
		n := uint64(list[i].Len)
		if (list[i].Addr|n)&(page-1) != 0 || n-1 >= left { // no bytes: huge
			return i, (room - left) >> (shift & 63)
		}
		left -= n
	}
	return len(list), (room - left) >> (shift & 63)
}
