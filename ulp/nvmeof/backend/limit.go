package backend

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"rdmarw/ulp/nvmeof/backend/internal/uring"
)

// transferLimit finds out how many bytes of a file or a block device its disk takes as one
// request: a multiple of 4096, and so of any block size. Zero: nothing is known.
//
// The kernel splits what is larger, but not for somebody who doesn't want to wait, as
// io_uring doesn't at first: it has one of its threads do it then, which costs more than
// all the rest.
func transferLimit(fd int) int {
	var stat unix.Stat_t
	if unix.Fstat(fd, &stat) != nil {
		return 0
	}
	dev := stat.Dev
	if stat.Mode&unix.S_IFMT == unix.S_IFBLK {
		dev = stat.Rdev
	}
	return diskLimit(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
}

// diskLimit is the transferLimit of a disk, or of a partition, by its folder in sysfs.
func diskLimit(folder string) int {
	// mostPages is what the kernel gathers for one request, whatever the disk takes.
	const unit, mostPages = 4096, 256
	// The folder is a link, and its parent is that of where it leads to: no path.Join here.
	for _, queue := range []string{folder + "/queue/", folder + "/../queue/"} {
		limit := min(number(queue+"max_sectors_kb"), uring.MaxTransfer>>10) << 10
		if limit == 0 {
			continue
		}
		pages := mostPages
		if n := number(queue + "max_segments"); n > 0 {
			pages = min(pages, n)
		}
		// No page may be where the one before it ends, and data may begin within one.
		limit = min(limit, (pages-1)*os.Getpagesize())
		return max(limit/unit*unit, unit)
	}
	return 0
}

// number reads a number from a file. Zero: there is none.
func number(file string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 31)
	if err != nil {
		return 0
	}
	return int(n)
}
