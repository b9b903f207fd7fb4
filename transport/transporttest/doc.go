// Package transporttest is the conformance suite of package transport: a table of
// behaviours, each carried out on a pair of devices through nothing but the contract, and
// recorded. It is for the authors of transports, and it is what the simulator of package
// sim is held to real devices with.
//
// # Rows
//
// A [Row] is one behaviour: a READ by a key that has been closed, a chain with a bad request
// in its middle, a peer that rejects with 148 bytes of private data. Running it on a device
// gives a [Cell]: words that say what was seen, such as
//
//	A=remote-access B=flushed bytes=none
//
// by A, who connects and mostly acts, and B, who listens and mostly is acted upon: the status
// of A's request, what became of B's next receive, which bytes changed. Statuses, errors and
// counts are recorded, not verdicts; devices do differ. Vendor codes, numbers and times are
// not recorded. Where a device leaves something open (on iWARP, whether a sender still hears
// of a refusal), the row records what is sure.
//
// A row that is about something that the device doesn't have, such as windows, is left out:
// its cell is "–".
//
// # What holds on every device
//
// Some things aren't recorded but demanded, in each row ([Cell.Broken]): no byte changes that
// was neither exposed, nor a sink, nor given to a receive; no completion comes that nobody
// is owed; everything can be closed again, in the contract's order; errors are the
// contract's; what must happen does so within 20 seconds.
//
// # For a transport's author
//
// Write a [Factory]. It gives a [Bed]: two devices, or one twice, that can connect to each
// other, fresh for each row, an address to listen on and one where nobody listens. The suite
// makes all else, and closes it. It waits by CQ.Wait, Conn.Established and Listener.Next only,
// so a simulation may move in these, and must return from them at once when nothing is left to
// happen. Then
//
//	func TestConformance(t *testing.T) { transporttest.Run(t, factory) }
//
// fails where something happens that must not happen anywhere, and logs the cells. With
// another column to compare with, [Fill] both and [Compare] them.
//
// Rows that crash the kernel of some devices are marked ([Row.Crashes]) and only run when
// they are asked for by their whole name.
package transporttest
