package tool

import (
	stdjson "encoding/json"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/jsonschema-go/jsonschema"
)

// schema checks arguments. The library reads the schema, which is ours, with encoding/json; the
// arguments are decoded by the caller and only looked at.
type schema struct {
	resolved *jsonschema.Resolved
}

func compile(v jsontext.Value) (*schema, error) {
	if v.Kind() != '{' || !v.IsValid() {
		return nil, fmt.Errorf("not a JSON object")
	}
	var s jsonschema.Schema
	if err := stdjson.Unmarshal(v, &s); err != nil {
		return nil, err
	}
	r, err := s.Resolve(nil)
	if err != nil {
		return nil, err
	}
	return &schema{r}, nil
}

func (s *schema) check(v any) error {
	err := s.resolved.Validate(v)
	if err == nil {
		return nil
	}
	// "validating root: validating /properties/x: type: ..." says the place twice and the root always.
	text := strings.TrimPrefix(err.Error(), "validating root: ")
	return fmt.Errorf("%s", text)
}
