"""A camera as a stream: python examples/webcam.py [URL]. Needs OpenCV: pip install opencv-python."""

from __future__ import annotations

import sys

import cv2

import ctta

camera = cv2.VideoCapture(0)
with ctta.Client(*sys.argv[1:2], stream="webcam") as client:
    while camera.isOpened():
        there, frame = camera.read()
        if not there:
            break
        answer = client(cv2.imencode(".jpg", frame)[1].tobytes())
        words = f"class {answer.labels[0]}, {100 * answer.probabilities.max():.0f} %, {answer.guard}"
        cv2.putText(frame, words, (10, 30), cv2.FONT_HERSHEY_SIMPLEX, 1, (255, 255, 255), 2)
        cv2.imshow("ctta", frame)
        if cv2.waitKey(1) == 27:  # Escape
            break
