./cluster -name NAME run ./tenon lab load http://10.88.0.1:8000/ --rate $1 --duration ${2}s --warmup 1s --cpus 0 --connections 64 -o json 2>/dev/null
