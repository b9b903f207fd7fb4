package rw

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func takeChains(t *testing.T, s *slots, n int) (chains []*chain) {
	for range n {
		ch, err := s.take(nil, sendChain)
		require.NoError(t, err)
		chains = append(chains, ch)
	}
	return chains
}

func TestCookiesNameOneUseOfAChain(t *testing.T) {
	var s slots
	chains := takeChains(t, &s, 3)
	find := func(cookie uint64, want *chain, at int) {
		ch, position := s.lookup(cookie)
		require.Same(t, want, ch)
		require.Equal(t, at, position)
	}
	for _, ch := range chains {
		find(ch.cookie, ch, 0)
		find(ch.cookie+1, ch, 1)
		find(ch.cookie+maxChain-1, ch, maxChain-1)
	}
	second := chains[1]
	for _, uses := range []uint64{0, 5, 1<<24 - 1} { // the last: generations begin anew
		second.cookie = second.cookie%generation + uses*generation
		old := second.cookie
		find(old+7, second, 7)
		second.wrs, second.flushed, second.cause = 3, true, ErrClosed
		s.give(second)
		find(old, nil, 0)
		find(old+maxChain-1, nil, 0)
		require.Same(t, second, takeChains(t, &s, 1)[0])
		find(old, nil, 0)
		find(second.cookie, second, 0)
		require.Equal(t, chain{cookie: second.cookie, kind: sendChain}, *second, "empty")
	}
	find(3*maxChain, nil, 0)
	find(^uint64(0), nil, 0)
}

func TestChainsInALine(t *testing.T) {
	var s slots
	var l list
	chains := takeChains(t, &s, 4)
	for _, ch := range chains {
		l.push(ch)
	}
	l.remove(chains[1])
	l.remove(chains[3])
	l.push(chains[1])
	l.remove(chains[0])
	l.push(chains[3])
	for _, i := range []int{2, 1, 3} {
		require.False(t, l.empty())
		require.Same(t, chains[i], l.pop())
		require.Nil(t, chains[i].next)
	}
	require.True(t, l.empty())
}
