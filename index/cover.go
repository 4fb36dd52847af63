package index

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"iter"
	"os"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/strandline-dev/strandline/search"
	"github.com/strandline-dev/strandline/session"
	"github.com/strandline-dev/strandline/store"
)

// The tables of the search hold, of each event that has texts, its words and, for parts of words, every three adjacent
// signs of them; both as search.Units makes them, so that what SQLite compares is what search.Match compares. The texts
// themselves are not kept: what the tables propose is read from the log again.
//
// A row's key is the second of its event, and a number in it, so that keys descend as results do. Where a second is full,
// the next one that is not takes the event: never an earlier one.
//
// Nothing in these tables proves itself by row, as the other ones do, for FTS5 writes them. So one sum over all of them is
// written with each change, and compared by whoever opens the file before he believes an answer.

// cover is how far a session is in the tables.
type cover struct {
	n      int64
	Header session.Header `json:"header"`
	Stamp  []byte         `json:"stamp,omitzero"` // of the store's mark when Next was the end of the log; empty if it was not
	Past   []byte         `json:"past,omitzero"`  // of the mark
	Next   session.Seq    `json:"next"`
	Last   string         `json:"last,omitzero"` // digest of the event before Next
}

// doc is an event with texts.
type doc struct {
	seq          session.Seq
	time         int64
	tool         string
	words, grams string
}

const (
	slotBits  = 16
	maxSecond = 1 << 40
	chunkDocs = 20_000   // that one transaction takes in, at most,
	chunkSize = 16 << 20 // or so many bytes of words and one doc
)

// second is where an event of time ms belongs: it grows with time.
func second(ms int64) int64 { return min(max(ms/1000, 0), maxSecond) }

// docOf returns the row of an event; ok is false if it has no words.
func docOf(ev session.Event, texts []search.Text) (d doc, ok bool) {
	var words, grams strings.Builder
	known, seen := map[string]bool{}, map[string]bool{}
	for _, t := range texts {
		search.Units(t.Text, func(u search.Unit) bool {
			words.WriteString(u.Folded)
			words.WriteByte(' ')
			if known[u.Folded] {
				return true
			}
			word := strings.Clone(u.Folded)
			known[word] = true
			for g := range gramsOf(word) {
				if !seen[g] {
					seen[g] = true
					grams.WriteString(g)
					grams.WriteByte(' ')
				}
			}
			return true
		})
	}
	d = doc{seq: ev.Seq, time: ev.Time, words: words.String(), grams: grams.String()}
	if ev.Type == session.TypeToolResult && len(texts) > 0 {
		d.tool = strings.Clone(texts[0].Tool)
	}
	return d, words.Len() > 0
}

// gramsOf yields every three adjacent signs of a word.
func gramsOf(word string) iter.Seq[string] {
	return func(yield func(string) bool) {
		var at [3]int // where the last three signs begin
		n := 0
		for i := range word {
			if n >= 3 && !yield(word[at[n%3]:i]) {
				return
			}
			at[n%3] = i
			n++
		}
		if n >= 3 {
			yield(word[at[n%3]:])
		}
	}
}

// loadCovers brings covers up to what the file says, once the tables were verified. Nil: they cannot be used. The caller
// holds mu.
func (x *Index) loadCovers(ctx context.Context) map[session.ID]cover {
	if x.open(ctx); x.db == nil {
		return nil
	}
	err := x.readCovers(ctx)
	if err != nil && ctx.Err() == nil {
		x.trouble(err)
		if x.open(ctx); x.db == nil { // thrown away, and begun anew
			return nil
		}
		if err = x.readCovers(ctx); err != nil && ctx.Err() == nil {
			x.trouble(err)
		}
	}
	if err != nil {
		return nil
	}
	return x.covers
}

func (x *Index) readCovers(ctx context.Context) error {
	var v int64
	if err := x.db.QueryRowContext(ctx, "PRAGMA data_version").Scan(&v); err != nil {
		return err
	}
	if x.covers != nil && x.coversAt == v {
		return nil
	}
	tx, err := x.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if !x.sound {
		var want int64
		if err := tx.QueryRowContext(ctx, "SELECT v FROM state WHERE name = '"+sumName+"'").Scan(&want); err != nil {
			return err
		}
		got, err := tablesSum(ctx, tx)
		if err != nil {
			return err
		}
		if got != want {
			return errWrong
		}
		x.sound = true
	}
	if err := tx.QueryRowContext(ctx, "SELECT v FROM state WHERE name = 'spill'").Scan(&x.spill); err != nil {
		return err
	}
	rows, err := tx.QueryContext(ctx, "SELECT n, id, cover FROM covers")
	if err != nil {
		return err
	}
	defer rows.Close()
	covers := map[session.ID]cover{}
	for rows.Next() {
		var n int64
		var id string
		var raw []byte
		if err := rows.Scan(&n, &id, &raw); err != nil {
			return err
		}
		c, err := decodeCover(n, session.ID(id), raw)
		if err != nil {
			return err
		}
		covers[session.ID(id)] = c
	}
	if err := rows.Err(); err != nil {
		return err
	}
	x.covers, x.coversAt = covers, v
	x.coverings++
	return nil
}

func decodeCover(n int64, id session.ID, raw []byte) (cover, error) {
	text, _, err := unseal(id, ofCover, raw)
	c := cover{n: n}
	if err == nil && json.Unmarshal(text, &c) != nil {
		err = errWrong
	}
	return c, err
}

// behind is a session that the tables do not know whole.
type behind struct {
	mark store.Mark
	stat store.Stat
	c    cover
	on   bool // the tables hold a part of it, which is still right
}

// from is where it has to be read from.
func (b behind) from() session.Seq {
	if b.on {
		return b.c.Next
	}
	return b.stat.Header.SeedLength
}

// part is what one transaction takes in of a session: docs, behind what was covers or in its place.
type part struct {
	was, next cover
	docs      []doc
	fresh     bool // the tables hold nothing of it that is right
	err       error
}

// taker reads what is new of sessions and takes it into the tables, of many sessions in one transaction: what each of them costs
// grows with the tables.
type taker struct {
	x     *Index
	parts []*part // that wait
	docs  int
	size  int
}

// full reports whether what waits is enough for a transaction.
func (t *taker) full() bool { return t.docs >= chunkDocs || t.size >= chunkSize }

// flush takes in what waits.
func (t *taker) flush(ctx context.Context) {
	t.x.put(ctx, t.parts)
	t.parts, t.docs, t.size = nil, 0, 0
}

// take reads a session. Once the taker was flushed, the part that it returns says under which number it is in the tables, or why
// it is not there.
func (t *taker) take(ctx context.Context, b behind) *part {
	h := b.stat.Header
	p := &part{was: b.c, fresh: !b.on, next: cover{n: b.c.n, Header: h, Past: []byte(b.mark.Past), Next: b.from()}}
	if b.on {
		p.next.Last = b.c.Last
	}
	t.parts = append(t.parts, p)
	var names search.Names
	from := p.next.Next
	err := search.Each(ctx, t.x.opt.Store, search.Target{Header: h, From: from, To: b.stat.Pos.Next}, func(log session.Prefix, ev session.Event) error {
		texts, err := names.Texts(ev, log, from)
		if err != nil {
			return err
		}
		if d, ok := docOf(ev, texts); ok {
			p.docs = append(p.docs, d)
			t.docs++
			t.size += len(d.words) + len(d.grams)
		}
		if p.next.Next = ev.Seq + 1; !t.full() {
			return nil
		}
		p.next.Last = digest(ev)
		t.flush(ctx)
		if p.err != nil {
			return p.err
		}
		p = &part{was: p.next, next: p.next}
		t.parts = append(t.parts, p)
		return nil
	})
	if err == nil && b.stat.Pos.Next > from {
		var ev session.Event
		if ev, err = t.x.eventAt(ctx, h, b.stat.Pos.Next-1); err == nil {
			p.next.Next, p.next.Last = b.stat.Pos.Next, digest(ev)
		}
	}
	if err == nil {
		p.next.Stamp = []byte(b.mark.Stamp)
		return p
	}
	p.err = err
	if !errors.Is(err, errOvertaken) && ctx.Err() == nil { // what was taken in may not be what can be read later
		t.x.erase(ctx, []session.ID{h.ID}, false)
	}
	return p
}

// put writes parts whose session is covered as they say, or is not where they are fresh. The error of a part says why it was
// not written.
func (x *Index) put(ctx context.Context, parts []*part) {
	parts = slices.DeleteFunc(slices.Clone(parts), func(p *part) bool { return p.err != nil })
	if len(parts) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	spilled := int64(0)
	err := errNoTables
	if x.db != nil {
		err = x.transact(ctx, func(tx *sql.Tx) error {
			var free []*part
			for _, p := range parts {
				switch err := p.claim(ctx, tx); {
				case errors.Is(err, errOvertaken):
					p.err = err // it says nothing of the other ones
				case err != nil:
					return err
				default:
					free = append(free, p)
				}
			}
			var err error
			if spilled, err = putDocs(ctx, tx, free); err != nil {
				return err
			}
			return x.sealTables(ctx, tx)
		})
		if err != nil && ctx.Err() == nil {
			x.trouble(err)
		}
	}
	for _, p := range parts {
		switch {
		case err != nil:
			p.err = err
		case p.err == nil && x.covers != nil:
			x.covers[p.next.Header.ID] = p.next
			x.coverings++
		}
	}
	if err == nil {
		x.spill = max(x.spill, spilled)
	}
}

// claim writes how far a session is covered with a part, and gives that its number. errOvertaken: nothing was written.
func (p *part) claim(ctx context.Context, tx *sql.Tx) error {
	id := p.next.Header.ID
	n := int64(0)
	var raw []byte
	err := tx.QueryRowContext(ctx, "SELECT n, cover FROM covers WHERE id = ?", string(id)).Scan(&n, &raw)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		if !p.fresh {
			return errOvertaken
		}
	case err != nil:
		return err
	case p.fresh && n != p.was.n:
		return errOvertaken
	case p.fresh:
		if err := eraseDocs(ctx, tx, n); err != nil {
			return err
		}
	default:
		c, err := decodeCover(n, id, raw)
		if err != nil {
			return err
		}
		if n != p.was.n || c.Next != p.was.Next || c.Last != p.was.Last {
			return errOvertaken
		}
	}
	text, err := json.Marshal(p.next)
	if err != nil {
		return err
	}
	text = seal(id, ofCover, text)
	if n == 0 {
		err = tx.QueryRowContext(ctx, "INSERT INTO covers(id, cover) VALUES(?, ?) RETURNING n", string(id), text).Scan(&n)
	} else {
		_, err = tx.ExecContext(ctx, "UPDATE covers SET cover = ? WHERE n = ?", text, n)
	}
	if err != nil {
		return err
	}
	p.next.n = n
	return nil
}

// fewSettled is how many sessions each process may look at again for itself, before that is written down.
const fewSettled = 16

// settle remembers that the logs of sessions are known whole.
func (x *Index) settle(ctx context.Context, covers []cover) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range covers {
		if was, ok := x.covers[c.Header.ID]; ok && was.n == c.n && was.Next == c.Next && was.Last == c.Last {
			x.covers[c.Header.ID] = c
			x.coverings++
		}
	}
	if len(covers) < fewSettled {
		return
	}
	x.write(ctx, func(tx *sql.Tx) error {
		for _, c := range covers {
			var raw []byte
			if err := tx.QueryRowContext(ctx, "SELECT cover FROM covers WHERE n = ?", c.n).Scan(&raw); errors.Is(err, sql.ErrNoRows) {
				continue
			} else if err != nil {
				return err
			}
			was, err := decodeCover(c.n, c.Header.ID, raw)
			if err != nil {
				return err
			}
			if was.Next != c.Next || was.Last != c.Last {
				continue // another process knows more
			}
			text, err := json.Marshal(c)
			if err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "UPDATE covers SET cover = ? WHERE n = ?", seal(c.Header.ID, ofCover, text), c.n); err != nil {
				return err
			}
		}
		return x.sealTables(ctx, tx)
	})
}

// errOvertaken says that another process took in the same texts first.
var errOvertaken = errors.New("index: another process was faster")

// putDocs writes the rows of parts. It returns by how many seconds a key is later than its event at most.
func putDocs(ctx context.Context, tx *sql.Tx, parts []*part) (spill int64, err error) {
	var stmts [4]*sql.Stmt
	for i, q := range []string{
		"SELECT max(key) FROM docs WHERE key >= ? AND key < ?", "INSERT INTO docs(key, n, seq, time, tool) VALUES(?, ?, ?, ?, ?)",
		"INSERT INTO words(rowid, text) VALUES(?, ?)", "INSERT INTO grams(rowid, text) VALUES(?, ?)",
	} {
		s, err := tx.PrepareContext(ctx, q)
		if err != nil {
			return 0, err
		}
		defer s.Close()
		stmts[i] = s
	}
	type row struct {
		key int64
		doc *doc
	}
	var rows []row
	free := map[int64]int64{} // by second: the next key
	for _, p := range parts {
		for i := range p.docs {
			d := &p.docs[i]
			var key int64
			for s := second(d.time); ; s++ {
				var ok bool
				if key, ok = free[s]; !ok {
					var top sql.NullInt64
					if err := stmts[0].QueryRowContext(ctx, s<<slotBits, (s+1)<<slotBits).Scan(&top); err != nil {
						return 0, err
					}
					if key = s << slotBits; top.Valid {
						key = top.Int64 + 1
					}
				}
				if free[s] = key + 1; key>>slotBits == s {
					spill = max(spill, s-second(d.time))
					break
				}
				free[s] = key
			}
			if _, err := stmts[1].ExecContext(ctx, key, p.next.n, int64(d.seq), d.time, []byte(d.tool)); err != nil {
				return 0, err
			}
			rows = append(rows, row{key, d})
		}
	}
	// What does not ascend, or stands between two texts, has FTS5 write what it gathers in memory: in small pieces, to be merged later.
	slices.SortFunc(rows, func(a, b row) int { return cmp.Compare(a.key, b.key) })
	for _, r := range rows {
		if _, err := stmts[2].ExecContext(ctx, r.key, r.doc.words); err != nil {
			return 0, err
		}
	}
	for _, r := range rows {
		if _, err := stmts[3].ExecContext(ctx, r.key, r.doc.grams); err != nil {
			return 0, err
		}
	}
	_, err = tx.ExecContext(ctx, "UPDATE state SET v = max(v, ?) WHERE name = 'spill'", spill)
	return spill, err
}

// eraseDocs takes the rows of a session out of the tables.
func eraseDocs(ctx context.Context, tx *sql.Tx, n int64) error {
	for _, q := range []string{
		"DELETE FROM words WHERE rowid IN (SELECT key FROM docs WHERE n = ?)",
		"DELETE FROM grams WHERE rowid IN (SELECT key FROM docs WHERE n = ?)", "DELETE FROM docs WHERE n = ?",
	} {
		if _, err := tx.ExecContext(ctx, q, n); err != nil {
			return err
		}
	}
	return nil
}

// Erase takes what is left of sessions that were deleted for good out of the file. It makes no file.
func (x *Index) Erase(ctx context.Context, ids ...session.ID) {
	if _, err := os.Lstat(x.opt.Path); err == nil {
		x.erase(ctx, ids, true)
	}
}

// erase takes sessions out of the tables. forGood: no word of them stays in the file either, which costs as much as writing
// the tables anew.
func (x *Index) erase(ctx context.Context, ids []session.ID, forGood bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.eraseLocked(ctx, ids, forGood)
}

func (x *Index) eraseLocked(ctx context.Context, ids []session.ID, forGood bool) {
	if x.loadCovers(ctx) != nil {
		x.eraseCovered(ctx, ids, forGood)
	}
	// What was taken out is in the pages that were replaced, too, and in the file beside it until these are in their places. That
	// goes for the rows of a session as for its words, of which the tables may have had none.
	if forGood && x.db != nil {
		if _, err := x.db.ExecContext(ctx, "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil && ctx.Err() == nil {
			x.trouble(err)
		}
	}
}

// eraseCovered takes sessions out of the tables that are in them. The caller holds mu, and covers are loaded.
func (x *Index) eraseCovered(ctx context.Context, ids []session.ID, forGood bool) {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id session.ID) bool { _, ok := x.covers[id]; return !ok })
	if len(ids) == 0 {
		return
	}
	if !x.write(ctx, func(tx *sql.Tx) error {
		for _, id := range ids {
			n := x.covers[id].n
			if err := eraseDocs(ctx, tx, n); err != nil {
				return err
			}
			if _, err := tx.ExecContext(ctx, "DELETE FROM covers WHERE n = ?", n); err != nil {
				return err
			}
		}
		for _, t := range []string{"words", "grams"} {
			if !forGood {
				break
			}
			if _, err := tx.ExecContext(ctx, "INSERT INTO "+t+"("+t+") VALUES('optimize')"); err != nil {
				return err
			}
		}
		return x.sealTables(ctx, tx)
	}) {
		return
	}
	for _, id := range ids {
		delete(x.covers, id)
		x.coverings++
	}
}
