package session

import (
	"reflect"
	"testing"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/strandline-dev/strandline/message"
)

// Every member of a State, and of what it is made of, is in its checkpoint: each is set to something, by reflection,
// and must come back. Who adds a member and forgets the checkpoint fails here.
func TestCheckpointHoldsEveryMember(t *testing.T) {
	s := NewState(Header{}, nil)
	v := reflect.ValueOf(&s).Elem()
	n := 0
	for i := range v.NumField() {
		switch name := v.Type().Field(i).Name; name {
		case "header", "reg", "recent": // given by who reads it
		default:
			fill(t, v.Field(i), "State."+name, &n)
		}
	}
	s.active = true
	b, err := s.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	got, err := UnmarshalState(Header{}, nil, b)
	if err != nil {
		t.Fatal(err)
	}
	got.reg, got.recent = s.reg, s.recent
	for i := range v.NumField() {
		a, b := v.Field(i), reflect.ValueOf(&got).Elem().Field(i)
		if !reflect.DeepEqual(open(a).Interface(), open(b).Interface()) {
			t.Errorf("State.%s does not survive a checkpoint: %+v became %+v", v.Type().Field(i).Name, a, b)
		}
	}
	if t.Failed() {
		t.Log("add what is missing to code (checkpoint.go) and let foldVersion rise")
	}
}

// open makes an unexported member accessible.
func open(v reflect.Value) reflect.Value {
	return reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem()
}

// fill sets v, and all that it is made of, to something that is not zero and nowhere the same.
func fill(t *testing.T, v reflect.Value, path string, n *int) {
	v = open(v)
	*n++
	switch p := v.Addr().Interface().(type) {
	case *seqs:
		for i := range Seq(5) {
			p.add(i*i + Seq(*n))
		}
		return
	case **hidden:
		deep := pack([]node{{ref: uint64(*n)}})
		*p = pack([]node{{ref: 900}, {ref: 17, hide: deep}, {ref: 1 << 60}})
		return
	case *jsontext.Value:
		*p = jsontext.Value(`{"later":1}`)
		return
	case *message.Message:
		*p = message.User("m", "text")
		p.Extra = jsontext.Value(`{"later":[2]}`)
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(int64(*n))
	case reflect.Uint64:
		v.SetUint(uint64(*n))
	case reflect.String:
		v.SetString("text " + string(rune('a'+*n%26)))
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, v.Elem(), path, n)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		for i := range v.Len() {
			fill(t, v.Index(i), path+"[]", n)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if f.Name == "base" && v.NumField() == 2 { // of a list: what is read has all of it in own
				continue
			}
			fill(t, v.Field(i), path+"."+f.Name, n)
		}
	default:
		t.Fatalf("%s has a type that this test cannot fill: %v", path, v.Type())
	}
}
