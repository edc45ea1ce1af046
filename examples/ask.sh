#!/usr/bin/env sh
# Asks a service with curl: sh examples/ask.sh picture.jpg
set -eu
url=${CTTA_URL:-http://127.0.0.1:8000}
infer="$url/v2/models/model/infer"

echo "What is served:"
curl -sS "$url/v2/models/model"; echo

echo "A picture as it is, of the stream 'porch'; the model learns from it:"
curl -sS -H 'Content-Type: image/jpeg' --data-binary "@$1" "$infer?stream=porch"; echo

echo "The same picture twice, without learning, with the unadapted model's answer:"
curl -sS -F "a=@$1" -F "b=@$1" "$infer?stream=porch&adapt=false&source=true"; echo

echo "The stream, then freeze it:"
curl -sS "$url/streams/porch" | head -c 400; echo
curl -sS -X POST "$url/streams/porch/freeze"; echo
