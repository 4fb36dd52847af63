package dsh

import (
	"cmp"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/importer"
	"github.com/strandline-dev/strandline/session"
)

type jsonValue = jsontext.Value

// surface gives ev what the row says of the surface. A message without an operation is appended, as it was in
// the first version. ok is false for what only concerns system prompts, which are no messages here.
func (r *reader) surface(ev *session.Event, class session.Class, o importer.Object) (how string, ok bool) {
	has := o.Has("surfaceOp") || o.Has("sourceEventSeqs")
	if class != session.ClassSurface {
		if has {
			r.log.Fidelity.Drop("surface operations of events that have none here", 1)
		}
		return "", true
	}
	op := o.Get("surfaceOp")
	ev.Op = session.Append()
	if s, _ := importer.Text(op); s != "append" {
		switch obj, isObj := importer.ParseObject(op); {
		case op == nil || op.Kind() == 'n':
			how = "messages without a surface operation, appended"
		case isObj:
			start, ok1 := r.ref(obj, "start", "startSeq")
			end, ok2 := r.ref(obj, "end", "endSeq")
			if kind, _ := obj.String("op"); kind != "replace" || !ok1 || !ok2 {
				how = "unreadable surface operations, appended"
				break
			}
			if r.system[start] && r.system[end] {
				return "", false
			}
			ev.Op = session.Replace(start, end)
		default:
			how = "unreadable surface operations, appended"
		}
	}
	sources, bent := r.sources(o.Get("sourceEventSeqs"), ev.Seq)
	if len(sources) > 0 || sources != nil && ev.Type == session.TypeAssistantMessage {
		ev.Sources = sources
	}
	if bent && how == "" {
		how = "citations mended"
	}
	return how, true
}

func (r *reader) ref(o importer.Object, names ...string) (session.Seq, bool) {
	for _, name := range names {
		if n, ok := o.Int(name); ok && n >= 0 {
			if q, ok := r.num.find(n); ok {
				return q, true
			}
			return session.Seq(n), true
		}
	}
	return 0, false
}

// sources reads citations: seqs, or pairs of the first and the last. Those of no earlier event are left out.
func (r *reader) sources(v jsonValue, own session.Seq) (out session.Sources, bent bool) {
	list, ok := importer.Elements(v)
	if !ok {
		return nil, v != nil && v.Kind() != 'n'
	}
	out = make(session.Sources, 0, min(len(list), 64))
	for _, e := range list {
		first, ok := importer.Int(e)
		last := first
		if pair, isPair := importer.Elements(e); isPair && len(pair) == 2 {
			var ok2 bool
			first, ok = importer.Int(pair[0])
			last, ok2 = importer.Int(pair[1])
			ok = ok && ok2
		}
		if !ok || first < 0 || last < first {
			bent = true
			continue
		}
		more, whole := r.where(first, last, own)
		out, bent = append(out, more...), bent || !whole
	}
	sorted := slices.Clone(out)
	slices.SortFunc(sorted, func(a, b session.Span) int { return cmp.Compare(a.First, b.First) })
	for i := 1; i < len(sorted); i++ {
		if sorted[i].First <= sorted[i-1].Last { // cited twice: once is enough
			return union(sorted), true
		}
	}
	return out, bent
}

// where leads a run of the source's seqs to where their events stand.
func (r *reader) where(first, last int64, own session.Seq) (out session.Sources, whole bool) {
	limit := int64(own)
	if r.num.moved == nil || last < r.num.same && len(r.num.moved) == 0 || last-first > 4096 {
		if first >= limit {
			return nil, false
		}
		return session.Sources{{First: session.Seq(first), Last: session.Seq(min(last, limit-1))}}, last < limit
	}
	whole = true
	for s := first; s <= last; s++ {
		q, ok := r.num.find(s)
		if !ok || q >= own {
			whole = false
			continue
		}
		if n := len(out); n > 0 && out[n-1].Last+1 == q {
			out[n-1].Last = q
			continue
		}
		out = append(out, session.Span{First: q, Last: q})
	}
	return out, whole
}

// union merges what overlaps.
func union(sorted session.Sources) session.Sources {
	out := sorted[:1]
	for _, sp := range sorted[1:] {
		if last := &out[len(out)-1]; sp.First <= last.Last {
			last.Last = max(last.Last, sp.Last)
		} else {
			out = append(out, sp)
		}
	}
	return out
}

// mend gives a replacement that cannot be what it says the range that it means: what it cites and what stands in
// its range is on the surface in one run. It reports whether there is such a range.
func (r *reader) mend(ev *session.Event) bool {
	if ev.Op.Kind != session.OpReplace || ev.Type == session.TypeToolResult {
		return false
	}
	nodes := r.st.Surface()
	at := func(q session.Seq) int {
		return slices.IndexFunc(nodes, func(n session.Node) bool { return n.Seq == q })
	}
	var hidden []session.Seq
	if i, j := at(ev.Op.Start), at(ev.Op.End); i >= 0 && i <= j { // only the citations are wrong
		for _, n := range nodes[i : j+1] {
			hidden = append(hidden, n.Seq)
		}
	} else {
		last := -1
		for i, n := range nodes {
			means := ev.Sources.Has(n.Seq)
			if len(ev.Sources) == 0 {
				means = ev.Op.Start <= n.Seq && n.Seq <= ev.Op.End
			}
			if !means {
				continue
			}
			if last >= 0 && i != last+1 {
				return false
			}
			last, hidden = i, append(hidden, n.Seq)
		}
	}
	if len(hidden) == 0 {
		return false
	}
	ev.Op = session.Replace(hidden[0], hidden[len(hidden)-1])
	cited := append(session.Cite(hidden...), ev.Sources...)
	slices.SortFunc(cited, func(a, b session.Span) int { return cmp.Compare(a.First, b.First) })
	ev.Sources = union(cited)
	return true
}
