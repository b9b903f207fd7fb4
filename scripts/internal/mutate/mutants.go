package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// mutant is one change.
type mutant struct {
	ID         int
	File, Func string
	Line       int
	What       string
}

// edit replaces a part of a file. text gets the part itself with all edits inside of
// it done.
type edit struct {
	start, end int
	text       func(inner string) string
}

// source is a file with its mutants.
type source struct {
	name  string // relative to the module
	fset  *token.FileSet
	file  *ast.File
	info  *types.Info
	pkg   *types.Package
	src   []byte
	edits []edit
	fn    string
	all   *[]mutant
}

// mutate rewrites the named files of a package in the copy of the module at dir, and
// adds what it made to all.
func mutate(dir, pkg string, files []string, all *[]mutant) error {
	fset := token.NewFileSet()
	names, err := filepath.Glob(filepath.Join(dir, pkg, "*.go"))
	if err != nil {
		return err
	}
	var parsed []*ast.File
	sources := make(map[string]*source)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		f, err := parser.ParseFile(fset, name, src, parser.ParseComments)
		if err != nil {
			return err
		}
		parsed = append(parsed, f)
		rel := pkg + "/" + filepath.Base(name)
		sources[rel] = &source{name: rel, fset: fset, file: f, src: src, all: all}
	}
	info := &types.Info{Types: make(map[ast.Expr]types.TypeAndValue)}
	conf := types.Config{Importer: importer.ForCompiler(fset, "source", nil)}
	checked, err := conf.Check("rdmarw/"+pkg, fset, parsed, info)
	if err != nil {
		return err
	}
	for _, name := range files {
		s := sources[name]
		if s == nil {
			return fmt.Errorf("no file %s", name)
		}
		s.info, s.pkg = info, checked
		s.collect()
		out, err := s.rewritten()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), out, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (s *source) collect() {
	for _, decl := range s.file.Decls {
		fn, ok := decl.(*ast.FuncDecl)
		if !ok || fn.Body == nil || fn.Name.Name == "String" || fn.Name.Name == "Error" {
			continue
		}
		s.fn = fn.Name.Name
		s.walk(fn.Body, endsInError(fn.Type))
	}
}

func endsInError(t *ast.FuncType) bool {
	if t.Results == nil || len(t.Results.List) == 0 {
		return false
	}
	id, ok := t.Results.List[len(t.Results.List)-1].Type.(*ast.Ident)
	return ok && id.Name == "error"
}

// walk collects the mutants of a function's body.
func (s *source) walk(root ast.Node, returnsError bool) {
	ast.Inspect(root, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			s.walk(n.Body, endsInError(n.Type))
			return false
		case *ast.CallExpr:
			if text := s.text(n.Fun); text == "fmt.Errorf" || text == "refuse" || text == "panic" {
				return false
			}
		case *ast.BlockStmt:
			s.statements(n.List)
		case *ast.CaseClause:
			s.statements(n.Body)
			for _, e := range n.List {
				s.condition(e)
			}
		case *ast.IfStmt:
			s.condition(n.Cond)
		case *ast.BinaryExpr:
			s.binary(n)
		case *ast.ReturnStmt:
			s.results(n, returnsError)
		}
		return true
	})
}

var (
	negated  = map[token.Token]token.Token{token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS, token.GTR: token.LEQ, token.LEQ: token.GTR}
	moved    = map[token.Token]token.Token{token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR}
	logical  = map[token.Token]token.Token{token.LAND: token.LOR, token.LOR: token.LAND}
	computes = map[token.Token]token.Token{token.ADD: token.SUB, token.SUB: token.ADD, token.AND: token.OR, token.OR: token.AND, token.SHL: token.SHR, token.SHR: token.SHL}
	assigns  = map[token.Token]token.Token{token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN, token.OR_ASSIGN: token.AND_ASSIGN, token.AND_ASSIGN: token.OR_ASSIGN}
)

func (s *source) binary(n *ast.BinaryExpr) {
	tv := s.info.Types[n]
	if tv.Value != nil {
		return // a constant
	}
	with := func(op token.Token) string {
		return s.render(n.X.Pos(), n.X.End()) + " " + op.String() + " " + s.render(n.Y.Pos(), n.Y.End())
	}
	what := func(op token.Token) string {
		return fmt.Sprintf("`%s`: %s instead of %s", s.text(n), op, n.Op)
	}
	if neg, ok := negated[n.Op]; ok {
		ops := []token.Token{neg}
		if m, ok := moved[n.Op]; ok {
			ops = append(ops, m)
		}
		ids := make([]int, len(ops))
		for i, op := range ops {
			ids[i] = s.add(n.Pos(), what(op))
		}
		s.replace(n, func(string) string {
			text, rest := "", ""
			for i, op := range ops {
				text += fmt.Sprintf("mutant.On(%d) && (%s) || ", ids[i], with(op))
				rest += fmt.Sprintf("!mutant.Is(%d) && ", ids[i])
			}
			return "(" + text + rest + "(" + with(n.Op) + "))"
		})
	}
	if op, ok := logical[n.Op]; ok {
		id := s.add(n.Pos(), what(op))
		s.replace(n, func(string) string {
			return fmt.Sprintf("(mutant.On(%d) && (%s) || !mutant.Is(%d) && (%s))", id, with(op), id, with(n.Op))
		})
	}
	if op, ok := computes[n.Op]; ok && s.pure(n) {
		if b, ok := tv.Type.Underlying().(*types.Basic); ok && b.Info()&types.IsInteger != 0 && b.Info()&types.IsUntyped == 0 {
			id := s.add(n.Pos(), what(op))
			s.replace(n, func(string) string {
				return fmt.Sprintf("mutant.Pick[%s](%d, %s, %s)", s.typeName(tv.Type), id, with(n.Op), with(op))
			})
		}
	}
}

func (s *source) typeName(t types.Type) string {
	return types.TypeString(t, func(p *types.Package) string {
		if p == s.pkg {
			return ""
		}
		return p.Name()
	})
}

// pure reports whether evaluating an expression twice does no harm.
func (s *source) pure(e ast.Expr) bool {
	pure := true
	ast.Inspect(e, func(n ast.Node) bool {
		if c, ok := n.(*ast.CallExpr); ok {
			switch t := s.info.Types[c.Fun]; {
			case t.IsType(), t.IsBuiltin():
			default:
				pure = false
			}
		}
		return pure
	})
	return pure
}

// condition negates what binary doesn't.
func (s *source) condition(e ast.Expr) {
	if _, ok := e.(*ast.BinaryExpr); ok {
		return
	}
	if tv := s.info.Types[e]; tv.Value != nil || tv.Type == nil || !types.Identical(tv.Type.Underlying(), types.Typ[types.Bool]) {
		return
	}
	id := s.add(e.Pos(), fmt.Sprintf("`%s` negated", s.text(e)))
	s.replace(e, func(inner string) string { return fmt.Sprintf("(mutant.On(%d) != (%s))", id, inner) })
}

// locking is not mutated: only the race detector would see it.
var locking = []string{".Lock", ".Unlock", ".Wake", ".wake"}

// statements leaves out statements of a block, one at a time.
func (s *source) statements(list []ast.Stmt) {
	for _, stmt := range list {
		switch stmt := stmt.(type) {
		case *ast.ExprStmt:
			call, ok := stmt.X.(*ast.CallExpr)
			if !ok {
				continue
			}
			fun := s.text(call.Fun)
			if fun == "panic" || hasSuffix(fun, locking) {
				continue
			}
			s.leaveOut(stmt)
		case *ast.AssignStmt:
			if stmt.Tok == token.DEFINE {
				continue
			}
			if op, ok := assigns[stmt.Tok]; ok && s.integers(stmt.Lhs[0]) {
				out := s.add(stmt.Pos(), fmt.Sprintf("`%s` left out", s.text(stmt)))
				other := s.add(stmt.Pos(), fmt.Sprintf("`%s`: %s", s.text(stmt), op))
				s.replace(stmt, func(inner string) string {
					return fmt.Sprintf("if mutant.On(%d) { %s %s %s } else if !mutant.On(%d) { %s }", other,
						s.render(stmt.Lhs[0].Pos(), stmt.Lhs[0].End()), op, s.render(stmt.Rhs[0].Pos(), stmt.Rhs[0].End()), out, inner)
				})
				continue
			}
			s.leaveOut(stmt)
		case *ast.IncDecStmt:
			op := map[token.Token]string{token.INC: "--", token.DEC: "++"}[stmt.Tok]
			id := s.add(stmt.Pos(), fmt.Sprintf("`%s`: %s", s.text(stmt), op))
			s.replace(stmt, func(inner string) string {
				return fmt.Sprintf("if mutant.On(%d) { %s%s } else { %s }", id, s.text(stmt.X), op, inner)
			})
		case *ast.BranchStmt:
			if stmt.Tok == token.BREAK || stmt.Tok == token.CONTINUE {
				s.leaveOut(stmt)
			}
		}
	}
}

func (s *source) integers(e ast.Expr) bool {
	b, ok := s.info.Types[e].Type.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsInteger != 0
}

func (s *source) leaveOut(stmt ast.Stmt) {
	id := s.add(stmt.Pos(), fmt.Sprintf("`%s` left out", s.text(stmt)))
	s.replace(stmt, func(inner string) string { return fmt.Sprintf("if !mutant.On(%d) { %s }", id, inner) })
}

// results swaps true and false, and makes errors nil.
func (s *source) results(n *ast.ReturnStmt, returnsError bool) {
	for i, e := range n.Results {
		id, isIdent := e.(*ast.Ident)
		switch {
		case isIdent && (id.Name == "true" || id.Name == "false"):
			m := s.add(e.Pos(), fmt.Sprintf("`%s`: result %d negated", s.text(n), i))
			s.replace(e, func(inner string) string { return fmt.Sprintf("mutant.On(%d) != %s", m, inner) })
		case returnsError && i == len(n.Results)-1 && !(isIdent && id.Name == "nil"):
			if _, tuple := s.info.Types[e].Type.(*types.Tuple); tuple {
				continue
			}
			m := s.add(e.Pos(), fmt.Sprintf("`%s`: nil instead of the error", s.text(n)))
			s.replace(e, func(inner string) string { return fmt.Sprintf("mutant.Err(%d, %s)", m, inner) })
		}
	}
}

func hasSuffix(s string, suffixes []string) bool {
	for _, suffix := range suffixes {
		if strings.HasSuffix(s, suffix) {
			return true
		}
	}
	return false
}

func (s *source) add(pos token.Pos, what string) int {
	id := len(*s.all) + 1
	*s.all = append(*s.all, mutant{id, s.name, s.fn, s.fset.Position(pos).Line, what})
	return id
}

func (s *source) offset(p token.Pos) int { return s.fset.Position(p).Offset }

// text is a node's source on one line.
func (s *source) text(n ast.Node) string {
	fields := strings.Join(strings.Fields(string(s.src[s.offset(n.Pos()):s.offset(n.End())])), " ")
	if len(fields) > 90 {
		fields = fields[:87] + "..."
	}
	return fields
}

func (s *source) replace(n ast.Node, text func(inner string) string) {
	s.edits = append(s.edits, edit{s.offset(n.Pos()), s.offset(n.End()), text})
}

// render is the source of a range with the edits inside of it done, but not one of
// the whole range.
func (s *source) render(from, to token.Pos) string {
	return s.renderRange(s.offset(from), s.offset(to), nil)
}

func (s *source) renderRange(start, end int, except *edit) string {
	var b strings.Builder
	at := start
	for i := range s.edits { // sorted: outer before inner
		e := &s.edits[i]
		if e == except || e.start < at || e.end > end {
			continue
		}
		b.Write(s.src[at:e.start])
		b.WriteString(e.text(s.renderRange(e.start, e.end, e)))
		at = e.end
	}
	b.Write(s.src[at:end])
	return b.String()
}

func (s *source) rewritten() ([]byte, error) {
	sort.SliceStable(s.edits, func(i, j int) bool {
		a, b := s.edits[i], s.edits[j]
		if a.start != b.start {
			return a.start < b.start
		}
		return a.end > b.end
	})
	body := s.renderRange(0, len(s.src), nil)
	at := strings.Index(body, "\nimport")
	if at < 0 {
		at = strings.Index(body, "\npackage ") + 1 + len("package ") + len(s.file.Name.Name)
		if strings.HasPrefix(body, "package ") {
			at = len("package ") + len(s.file.Name.Name)
		}
	}
	out := body[:at] + "\nimport \"rdmarw/internal/mutant\"\n" + body[at:]
	if len(s.edits) == 0 {
		return s.src, nil
	}
	formatted, err := format.Source([]byte(out))
	if err != nil {
		return nil, fmt.Errorf("%w\n%s", err, bytes.TrimSpace([]byte(out)))
	}
	return formatted, nil
}
