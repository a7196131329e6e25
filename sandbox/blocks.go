package sandbox

import (
	"fmt"
)

// blocks hands out blocks of ids to groups. It claims the machine's ids in pieces of the size that
// an instance has (claimBlock), and divides each piece. The last free piece of Config.IDs is left
// for another daemon, which may start while this one drains. The groups' mutex guards it.
type blocks struct {
	config Config
	pieces []*piece
}

// A piece is a claimed block of ids, divided into blocks for groups.
type piece struct {
	*idBlock
	taken []bool
	next  int // where the search begins: a block that was just given back is used last
}

// take returns a block that no group has, or ErrNoIDs. The block's first pair is the zygote's.
func (b *blocks) take() (*idBlock, error) {
	for _, p := range b.pieces {
		if block := p.take(b.config.GroupIDs); block != nil {
			return block, nil
		}
	}
	p, err := b.claim()
	if err != nil {
		return nil, err
	}
	b.pieces = append(b.pieces, p)
	return p.take(b.config.GroupIDs), nil
}

// claim claims one more piece, if it is not the last one.
func (b *blocks) claim() (*piece, error) {
	none := func(err error) error {
		return fmt.Errorf("%w (%d groups have %d ids each; %w)", ErrNoIDs, b.inUse(), b.config.GroupIDs, err)
	}
	first, err := claimBlock(b.config)
	if err != nil {
		return nil, none(err)
	}
	last, err := claimBlock(b.config)
	if err != nil {
		first.close()
		return nil, none(err)
	}
	last.close()
	return &piece{idBlock: first, taken: make([]bool, 2*len(first.used)/int(b.config.GroupIDs))}, nil
}

// inUse counts the blocks that groups have.
func (b *blocks) inUse() (n int) {
	for _, p := range b.pieces {
		for _, taken := range p.taken {
			if taken {
				n++
			}
		}
	}
	return n
}

// take returns a free block of size ids, or nil. The block has no lock: the piece's lock covers it.
func (p *piece) take(size uint32) *idBlock {
	for i := range p.taken {
		at := (p.next + i) % len(p.taken)
		if p.taken[at] {
			continue
		}
		p.taken[at], p.next = true, at+1
		block := &idBlock{base: p.base, first: p.first + uint32(at)*size, used: make([]bool, size/2)}
		block.used[0] = true
		return block
	}
	return nil
}

// release takes a block back. Nothing with its ids may be left. One piece stays claimed, because
// the next group needs it.
func (b *blocks) release(block *idBlock) {
	for i, p := range b.pieces {
		if block.first < p.first || block.first >= p.first+uint32(2*len(p.used)) {
			continue
		}
		p.taken[(block.first-p.first)/b.config.GroupIDs] = false
		if len(b.pieces) > 1 && p.free() {
			p.close()
			b.pieces = append(b.pieces[:i:i], b.pieces[i+1:]...)
		}
		return
	}
}

// free reports whether no group has a block of the piece.
func (p *piece) free() bool {
	for _, taken := range p.taken {
		if taken {
			return false
		}
	}
	return true
}

func (b *blocks) close() {
	for _, p := range b.pieces {
		p.close()
	}
	b.pieces = nil
}

// MaxGroupIDs is the most ids that a group, or a daemon's default group, can have.
const MaxGroupIDs = blockIDs

// Groups returns how many groups besides the default one can have sandboxes or a zygote at the same
// time, with so many ids in all and for each group, if no other daemon runs.
func Groups(ids, each uint32) int {
	size := min(ids, blockIDs) &^ 1
	if size == 0 || each == 0 {
		return 0
	}
	return max(0, int(ids/size)-2) * int(size/each)
}
