// Package docs holds documents, and the tests that they are true.
package docs

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every test that the index of known bugs names exists, whatever it is built for, and
// every row names one or says in words why there is none. No number is missing.
func TestKnownBugsNamesTestsThatExist(t *testing.T) {
	exist := make(map[string]bool)
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				exist[fn.Name.Name] = true
			}
		}
		return nil
	})
	require.NoError(t, err)

	text, err := os.ReadFile("known-bugs.md")
	require.NoError(t, err)
	name := regexp.MustCompile(`\bTest[A-Z]\w*`)
	rows := make(map[string]map[string]bool) // by section: what the first columns say
	section := ""
	for line := range strings.Lines(string(text)) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(title)
			rows[section] = make(map[string]bool)
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) < 2 || strings.HasPrefix(cells[0], "-") {
			continue
		}
		rows[section][strings.TrimSpace(cells[0])] = true
		last := strings.TrimSpace(cells[len(cells)-1])
		require.NotEmpty(t, last, line)
		names := name.FindAllString(last, -1)
		for _, test := range names {
			require.True(t, exist[test], "%s doesn't exist: %s", test, line)
		}
		if len(names) == 0 {
			require.GreaterOrEqual(t, len(strings.Fields(last)), 3, "neither a test nor a reason: %s", line)
		}
	}
	for i := 1; i <= 37; i++ {
		if i != 9 { // in parts
			require.True(t, rows["Linux: rw.c, mr_pool.c, protocols, drivers"][fmt.Sprint(i)], "Linux %d", i)
		}
	}
	missing := map[int]bool{18: true, 24: true, 25: true, 32: true, 36: true, 38: true, 40: true, 41: true, 44: true, 47: true, 49: true,
		51: true, 56: true, 61: true, 62: true, 69: true, 72: true, 81: true, 86: true, 90: true} // never were
	for i := 1; i <= 91; i++ {
		require.Equal(t, !missing[i], rows["User-space storage software"][fmt.Sprint(i)], "user space %d", i)
	}
}
