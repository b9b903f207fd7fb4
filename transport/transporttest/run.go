package transporttest

import "testing"

// Run runs all rows on the devices of a factory, a subtest for each, and fails where
// something happens that must not happen on any device:
//
//   - memory changes that was neither exposed for it, nor the sink of an own READ, nor given
//     to a receive;
//   - a completion comes that nobody is owed, or comes twice;
//   - something that was made can't be closed;
//   - an error is none of the contract's;
//   - something that every device does is not done, or doesn't end.
//
// What devices may differ in is logged, and is what [Compare] is for. Rows that crash some
// machines ([Row.Crashes]) are left out.
func Run(t *testing.T, f Factory) {
	for _, row := range Find("") {
		t.Run(row.ID(), func(t *testing.T) {
			cell := row.Record(f)
			if cell.Unsupported {
				t.Skip("the device doesn't have what this is about")
			}
			t.Log(cell.Value)
			for _, what := range cell.Broken {
				t.Error(what)
			}
		})
	}
}
