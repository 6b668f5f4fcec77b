package journal

// Spent returns how many bytes this process has written to the file.
func (j *Journal) Spent() int64 { return j.spent }
