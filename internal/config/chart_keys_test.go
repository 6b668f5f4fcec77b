package config

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"testing"
)

// TestTheChartTakesEveryKeyOfTheConfigMap compares the keys that the chart's schema
// allows with those that tenond reads, or knows as keys of Koordinator.
func TestTheChartTakesEveryKeyOfTheConfigMap(t *testing.T) {
	text, err := os.ReadFile("../../deploy/chart/tenon/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			Config struct {
				Properties struct {
					Data struct{ Properties map[string]any }
				}
			}
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	known := slices.Concat(clusterKeys, foreignKeys)
	slices.Sort(known)
	known = slices.Compact(known)
	if got := slices.Sorted(maps.Keys(schema.Properties.Config.Properties.Data.Properties)); !slices.Equal(got, known) {
		t.Errorf("the chart takes %v, want %v", got, known)
	}
}
