package jobs

import (
	"strings"
	"testing"
)

// TestErrorsQuoteLittle gives each column a text of 16 KiB. NUL bytes are refused
// before; other bytes of a damaged file reach the columns.
func TestErrorsQuoteLittle(t *testing.T) {
	long := strings.Repeat("\u00ad", 16<<10) + "x"
	row := strings.Split("node00,bm,8,0.8,8gi,3,p,3,"+idA+",1489746275,1489746528,source4.mp4", ",")
	tables := map[string]string{"NUL": strings.Repeat("\x00", 16<<10)}
	for i, c := range columns[:published] {
		cells := append([]string{}, row...)
		cells[i] = long
		tables[c.name] = head + strings.Join(cells, ",") + "\n"
	}
	for _, c := range columns[published:] {
		tables[c.name] = strings.TrimSpace(head) + "," + c.name + "\n" + strings.Join(row, ",") + "," + long + "\n"
	}
	refused := 0
	for name, text := range tables {
		if _, err := ReadTable(strings.NewReader(text)); err != nil {
			refused++
			if len(err.Error()) > 1000 {
				t.Errorf("%s: an error of %d bytes: %.200s", name, len(err.Error()), err)
			}
		}
	}
	if refused < 20 {
		t.Errorf("only %d of %d tables are refused", refused, len(tables))
	}
}
