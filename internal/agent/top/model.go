package top

import (
	"cmp"
	"slices"
	"strings"

	tea "charm.land/bubbletea/v2"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/model/node"
)

// These are the messages that the view receives, besides those of the terminal
// and control.Status.
type (
	// silence is the reason why the agent does not answer.
	silence struct{ err error }
	// An explanation is the text of tenon explain for one workload, or an error.
	explanation struct {
		text string
		err  error
	}
)

// order is the sort key of the workloads.
type order int

const (
	byCPU order = iota
	byMemory
	byClass
	byName
	orders
)

var orderNames = [orders]string{"cpu", "memory", "class", "name"}

// A model is the state of the view, with the methods that draw it.
type model struct {
	explain func(node.WorkloadID) (control.Explanation, error)

	width, height int
	status        control.Status
	seen          bool // a status has arrived
	silent        error
	order         order
	rows          []control.Workload // sorted
	at            node.WorkloadID    // the workload under the cursor
	help          bool
	waits         bool   // show the waits instead of all workloads
	detail        string // the explanation to show; empty: show the overview
	scroll        int    // the first visible line of the help or the detail
}

func newModel(explain func(node.WorkloadID) (control.Explanation, error)) model {
	return model{explain: explain, width: 80, height: 24}
}

// Init returns no command, because follow sends the messages.
func (m model) Init() tea.Cmd { return nil }

// Update processes one message.
func (m model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case control.Status:
		m.status, m.seen, m.silent = msg, true, nil
		m.sort()
	case silence:
		m.silent = msg.err
	case explanation:
		m.detail, m.scroll = msg.text, 0
		if msg.err != nil {
			m.detail = msg.err.Error()
		}
	case tea.KeyPressMsg:
		return m.key(msg.String())
	}
	return m, nil
}

// key processes a key.
func (m model) key(key string) (tea.Model, tea.Cmd) {
	if key == "ctrl+c" {
		return m, tea.Quit
	}
	if m.page() != "" {
		switch key {
		case "up", "k":
			m.scroll = max(m.scroll-1, 0)
		case "down", "j":
			m.scroll = min(m.scroll+1, max(len(m.wrapPage())-1, 0))
		default:
			m.help, m.detail = false, ""
		}
		return m, nil
	}
	switch key {
	case "q", "esc":
		return m, tea.Quit
	case "?", "h":
		m.help, m.scroll = true, 0
	case "w":
		m.waits = !m.waits
		m.sort()
	case "s":
		m.order = (m.order + 1) % orders
		m.sort()
	case "up", "k":
		m.move(-1)
	case "down", "j":
		m.move(1)
	case "pgup":
		m.move(-10)
	case "pgdown":
		m.move(10)
	case "enter":
		if id := m.at; id != "" {
			return m, func() tea.Msg {
				e, err := m.explain(id)
				return explanation{e.String(), err}
			}
		}
	}
	return m, nil
}

// sort sorts the workloads. The cursor stays on the same workload.
func (m *model) sort() {
	m.rows = slices.Clone(m.status.Workloads)
	if m.waits {
		m.rows = slices.DeleteFunc(m.rows, func(w control.Workload) bool { return !w.Class.Sensitive() })
	}
	slices.SortStableFunc(m.rows, func(a, b control.Workload) int {
		byID := strings.Compare(string(a.ID), string(b.ID))
		switch m.order {
		case byMemory:
			return cmp.Or(cmp.Compare(b.Memory.Or(-1), a.Memory.Or(-1)), byID)
		case byClass:
			return cmp.Or(cmp.Compare(slices.Index(node.Classes, a.Class), slices.Index(node.Classes, b.Class)),
				cmp.Compare(b.CPU.Or(-1), a.CPU.Or(-1)), byID)
		case byName:
			return byID
		default:
			return cmp.Or(cmp.Compare(b.CPU.Or(-1), a.CPU.Or(-1)), byID)
		}
	})
	m.move(0)
}

// cursor returns the index of the row under the cursor.
func (m *model) cursor() int {
	return max(slices.IndexFunc(m.rows, func(w control.Workload) bool { return w.ID == m.at }), 0)
}

func (m *model) move(by int) {
	if len(m.rows) == 0 {
		m.at = ""
		return
	}
	m.at = m.rows[min(max(m.cursor()+by, 0), len(m.rows)-1)].ID
}
