package app

import (
	"time"

	"github.com/strandline-dev/strandline/agent"
	"github.com/strandline-dev/strandline/config"
	"github.com/strandline-dev/strandline/llm"
)

const (
	titleTimeout = 30 * time.Second
	titleGrace   = 2 * time.Second // that leaving may take longer, because the title of a first turn is under way
)

// titles says which model is asked for titles; nil: none. A script is asked if it has lines for that: others it keeps
// for the conversation.
func titles(o WorkOptions) *agent.Titles {
	if o.Config == nil || !o.Config.Title.IsSet() || o.Script != nil && !o.Script.Serves(llm.PurposeTitle) {
		return nil
	}
	t := agent.Titles{Timeout: titleTimeout, Grace: titleGrace}
	if v := o.Config.Title.V; v != config.TitleByModel {
		t.Route, _ = parseRoute(v)
	}
	return &t
}
