"""An adapting model behind HTTP: the Open Inference Protocol V2, with a stream of its own for every camera."""
