package transport

// The loops over lists that planning consists of. What lists are mostly made of goes
// four or eight pieces at a time where the processor can (see list_amd64.s), which finds
// out that something is different, but not where: then the same is done one by one.

// fewest is from how many pieces on four at a time is quicker.
const fewest = 8

// SGEs writes SGEs for pieces from the start of a list, for as long as there is room and
// they are as most are: in this region, not empty, and apart from the one before (whose
// end is given, for the first; zero: there was none). It returns how many they were, and
// their bytes; even tells that all are known to be of one length. It doesn't check rights.
func (e *RegionEntry) SGEs(dst []SGE, list []Piece, end uint64) (n int, total uint64, even bool) {
	room := min(len(dst), len(list))
	if !fourAtATime || room < fewest {
		n, total = e.sges(dst[:room], list[:room], end)
		return n, total, false
	}
	total, least, bad := writeSGEs4(&dst[0], &list[0], room/4, e, end)
	if bad != 0 || least == 0 {
		n, total = e.sges(dst[:room], list[:room], end)
		return n, total, false
	}
	n = room &^ 3
	even = total == uint64(n)*least
	if n < room {
		more, bytes := e.sges(dst[n:room], list[n:room], list[n-1].End())
		for i := range list[n:][:more] {
			even = even && uint64(list[n+i].Len) == least
		}
		n, total = n+more, total+bytes
	}
	return n, total, even
}

// sges is SGEs one by one: short enough for what it compares to stay in registers.
func (e *RegionEntry) sges(dst []SGE, list []Piece, end uint64) (n int, total uint64) {
	id, lkey, start, limit := e.ID, e.LKey, e.Addr, e.Addr+e.Len
	dst = dst[:len(list)]
	for i := range list {
		p := &list[i]
		addr, bytes := p.Addr, uint64(p.Len)
		if addr == end || p.Region != id || addr < start {
			return i, total
		}
		if end = addr + bytes; end > limit || end <= addr { // the latter: no bytes, or too many
			return i, total
		}
		s := &dst[i]
		s.Addr, s.Len, s.LKey = addr, uint32(bytes), lkey
		total += bytes
	}
	return len(list), total
}

// holdsPages reports whether all pieces are whole pages in the region, one each.
func (e *RegionEntry) holdsPages(list []Piece, page uint64) bool {
	inPage := page - 1
	before := -e.Addr & inPage // the first page
	if e.Len < before+page {
		return false
	}
	id, first, last := e.ID, e.Addr+before, e.Len-before-page // the latter from there
	if fourAtATime && len(list) >= fewest {
		if checkPages4(&list[0], len(list)/4, first, last, uint64(id)<<32|page, inPage) != 0 {
			return false // or the region is larger than half of all addresses
		}
		n := len(list) &^ 3
		if n == len(list) {
			return true
		}
		list = list[n:]
	}
	odd := uint64(0)
	for i := range list {
		p := &list[i]
		offset := p.Addr - first // huge below
		if p.Region != id || offset > last {
			return false
		}
		odd |= offset&inPage | uint64(p.Len) ^ page
	}
	return odd == 0
}

// onePageEach writes down the pages of a list whose pieces are one page each, as most
// lists of storage are. It returns false, with rubbish in pages, if they aren't.
func onePageEach(pages []uint64, list []Piece, page uint64) bool {
	if fourAtATime && len(pages) >= fewest && page <= 1<<31 {
		if writePages4(&pages[0], &list[0], len(pages)/4, page) != 0 {
			return false
		}
		n := len(pages) &^ 3
		if n == len(pages) {
			return true
		}
		pages, list = pages[n:], list[n:]
	}
	odd := uint64(0)
	list = list[:len(pages)]
	for i := range pages {
		p := &list[i]
		pages[i] = p.Addr
		odd |= p.Addr&(page-1) | uint64(p.Len) ^ page
	}
	return odd == 0
}
