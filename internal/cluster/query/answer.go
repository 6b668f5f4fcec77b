package query

import (
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"math"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/fetch"
	"tenon.sh/tenon/internal/cluster/promapi"
	"tenon.sh/tenon/internal/model/node"
)

const (
	maxBuckets = 128
	maxEnd     = 32 // bytes of the end of a bucket
	// maxCount is the largest number of requests that a float64 counts exactly.
	maxCount = 1 << 53
	// maxTime is a time in the year 2286, in seconds.
	maxTime = 1e10
)

// An answer is what the HTTP API of Prometheus answers to an instant query.
type answer struct {
	Status   string   `json:"status"`
	Warnings []string `json:"warnings"`
	Data     struct {
		Type   string `json:"resultType"`
		Result []struct {
			Metric map[string]string  `json:"metric"`
			Value  [2]json.RawMessage `json:"value"` // a time, and a number as text
		} `json:"result"`
	} `json:"data"`
}

// parse returns the answer about each pod in it.
func parse(r io.Reader) (map[string]v1alpha1.QueriedService, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	var a answer
	switch err := json.Unmarshal(text, &a); {
	case err != nil, a.Status != "success", a.Data.Type != "vector":
		return nil, errors.Join(fetch.Fault(node.TroubleContent), err)
	case len(a.Warnings) > 0:
		return nil, fetch.Fault(node.TroublePartial)
	}
	pods := map[string]*histogram{}
	for _, s := range a.Data.Result {
		h := pods[s.Metric["pod"]]
		if h == nil {
			h = &histogram{}
			pods[s.Metric["pod"]] = h
		}
		if value, is := promapi.Number(s.Value[1]); !is {
			h.damaged = true
		} else if end := s.Metric["le"]; end == "" {
			h.read(value)
		} else if s.Metric["series"] != "" {
			h.addsUp(value)
		} else {
			h.add(end, value)
		}
	}
	all := make(map[string]v1alpha1.QueriedService, len(pods))
	for name, h := range pods {
		all[name] = h.service()
	}
	return all, nil
}

// A histogram is that of one pod.
type histogram struct {
	buckets []bucket
	series  float64   // the number of series in each bucket; 0: not known
	at      time.Time // of the earliest sample
	damaged bool
}

type bucket struct {
	end   float64
	text  string
	count int64
}

// read takes the time of the earliest sample, in seconds.
func (h *histogram) read(seconds float64) {
	if seconds <= 0 || seconds > maxTime || !h.at.IsZero() {
		h.damaged = true
		return
	}
	h.at = time.UnixMilli(int64(math.Round(seconds * 1000)))
}

// addsUp takes the number of series that are added up in a bucket. If it is not the
// same in all of them, the series have other buckets, and their sums mean nothing.
func (h *histogram) addsUp(series float64) {
	h.damaged = h.damaged || h.series != 0 && h.series != series
	h.series = series
}

// add takes the number of requests up to the end of a bucket.
func (h *histogram) add(text string, count float64) {
	end, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsNaN(end) || len(text) > maxEnd || count < 0 || count > maxCount || count != math.Trunc(count) {
		h.damaged = true
		return
	}
	h.buckets = append(h.buckets, bucket{end, text, int64(count)})
}

// service returns the answer about the pod. Whether the counts make a histogram is
// for the agent to say, as with a histogram that it has read itself.
func (h *histogram) service() (s v1alpha1.QueriedService) {
	switch {
	case h.damaged, h.at.IsZero() != (len(h.buckets) == 0):
		s.Trouble = string(node.TroubleDamaged)
		return s
	case len(h.buckets) > maxBuckets:
		s.Trouble = string(node.TroubleTooLarge)
		return s
	}
	at := metav1.NewMicroTime(h.at)
	s.At = &at
	slices.SortFunc(h.buckets, func(a, b bucket) int { return cmp.Compare(a.end, b.end) })
	for _, b := range h.buckets {
		s.Ends, s.Counts = append(s.Ends, b.text), append(s.Counts, b.count)
	}
	return s
}
