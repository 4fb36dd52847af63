package session

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// Each new event is held to the Go type of its data. Decoding it for that made strings and slices that nobody
// read, and was the dearest part of accepting a message; so the types are turned into forms, and the bytes are held
// to those. A fuzz target compares the verdict with that of decoding.

// form is what may stand in JSON where a value of a Go type is read from. null may stand everywhere.
type form struct {
	kind   reflect.Kind // Bool, Int, String, Slice, Struct; Interface: anything
	bits   int          // Int
	elem   *form        // Slice
	fields []formField  // Struct; other members may be anything
}

type formField struct {
	name string
	form *form
}

// shape returns a check of data that can be decoded into T, and that check accepts; nil accepts all of T.
func shape[T any](check func(jsontext.Value) error) func(jsontext.Value) error {
	f := sync.OnceValue(func() *form { return formOf(reflect.TypeFor[T](), map[reflect.Type]*form{}) })
	return func(v jsontext.Value) error {
		if err := f().fits(v); err != nil || check == nil {
			return err
		}
		return check(v)
	}
}

// formOf returns the form of a type that is made of what the data of events is made of; known are those on the way.
func formOf(t reflect.Type, known map[reflect.Type]*form) *form {
	if f, ok := known[t]; ok {
		return f
	}
	f := &form{kind: reflect.Interface}
	known[t] = f
	switch k := t.Kind(); {
	case t == reflect.TypeFor[jsontext.Value]():
	case k == reflect.Pointer:
		f = formOf(t.Elem(), known)
		known[t] = f
	case k == reflect.Bool, k == reflect.String:
		f.kind = k
	case k == reflect.Int, k == reflect.Int64:
		f.kind, f.bits = reflect.Int, t.Bits()
	case k == reflect.Slice:
		f.kind, f.elem = k, formOf(t.Elem(), known)
	case k == reflect.Struct:
		f.kind = k
		for sf := range t.Fields() {
			if name, _, _ := strings.Cut(sf.Tag.Get("json"), ","); name != "" { // else it holds unknown members
				f.fields = append(f.fields, formField{name, formOf(sf.Type, known)})
			}
		}
	default:
		panic(fmt.Sprintf("session: data of events has no %s", t)) // found by the first test that makes one
	}
	return f
}

// fits says why a value does not have the form. value is compact, valid JSON with unique names; on other bytes the answer
// is some answer.
func (f *form) fits(value []byte) error {
	if len(value) == 0 || value[0] == 'n' {
		return nil
	}
	switch b := value[0]; {
	case f.kind == reflect.Interface, f.kind == reflect.String && b == '"', f.kind == reflect.Bool && (b == 't' || b == 'f'):
		return nil
	case f.kind == reflect.Int && (b == '-' || '0' <= b && b <= '9'):
		if _, err := strconv.ParseInt(string(value), 10, f.bits); err != nil {
			return fmt.Errorf("%s is no whole number", value)
		}
		return nil
	case f.kind == reflect.Slice && b == '[':
		return f.elements(value)
	case f.kind == reflect.Struct && b == '{':
		return f.members(value)
	}
	return fmt.Errorf("want a %s", f.kind)
}

func (f *form) elements(arr []byte) (err error) {
	eachElement(arr, func(value []byte) {
		if err == nil {
			err = f.elem.fits(value)
		}
	})
	return err
}

func (f *form) members(obj []byte) (err error) {
	eachMember(obj, func(name, value []byte) {
		for i := range f.fields {
			if n := f.fields[i].name; err == nil && len(name) == len(n)+2 && string(name[1:len(name)-1]) == n {
				if err = f.fields[i].form.fits(value); err != nil {
					err = fmt.Errorf("%s: %w", name, err)
				}
				return
			}
		}
	})
	return err
}
