#!/bin/sh
# start-ffmpeg.sh PROCESSES THREADS INPUT OUTPUT: that many ffmpeg processes of
# that many threads transcode INPUT again and again until the container is
# stopped. What they write to the folder OUTPUT is overwritten in turn, so that
# it does not grow; how far each is stands in OUTPUT/progress-N.
set -eu
[ $# = 4 ] || { echo "usage: start-ffmpeg.sh PROCESSES THREADS INPUT OUTPUT" >&2; exit 2; }
processes=$1 threads=$2 input=$3 output=$4

[ -r "$input" ] || { echo "start-ffmpeg.sh: cannot read $input" >&2; exit 1; }
mkdir -p "$output"
trap 'exit 0' TERM INT
for i in $(seq "$processes"); do
	ffmpeg -nostdin -hide_banner -loglevel error -nostats -y \
		-progress "$output/progress-$i" -stats_period 1 \
		-stream_loop -1 -threads "$threads" -i "$input" \
		-map 0:v:0 -c:v libx264 -preset veryfast -threads "$threads" \
		-f segment -segment_format mpegts -segment_time 6 -segment_wrap 2 "$output/$i-%d.ts" &
done
echo "$processes ffmpeg processes of $threads threads transcode $input"
wait
