"""`ctta serve`: an adapting model behind HTTP."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from ctta.cli.options import MODEL, Device, Mean, Std, numbers
from ctta.cli.terminal import say

EXAMPLES = "Example:  ctta serve my_model.py:make --size 224 --method tent --state states/ --port 8000"


def command(
    model: Annotated[str | None, Argument(help=f"{MODEL} Default: embedded.")] = None,
    config: Annotated[Path | None, Option("--config", "-c", help="YAML file with settings; flags go first.")] = None,
    method: Annotated[
        str | None, Option(help="A name from `ctta list methods`, or file.py:Class, whose code is run. Default: sift.")
    ] = None,
    preset: Annotated[str | None, Option(help="Preset of the method.")] = None,
    change: Annotated[
        list[str] | None, Option("--set", metavar="SETTING=VALUE", help="Change a setting of the service.")
    ] = None,
    weights: Annotated[str | None, Option(help="File with the weights of the model.")] = None,
    mean: Mean = None,
    std: Std = None,
    size: Annotated[int | None, Option(help="Pixels per side of the images, if the model does not say it.")] = None,
    classes: Annotated[str | None, Option(help="Text file with the names of the classes, one per line.")] = None,
    state: Annotated[str | None, Option(help="Folder for what streams have learned.")] = None,
    host: Annotated[str | None, Option(help="Address to listen at. Default: 127.0.0.1.")] = None,
    port: Annotated[int | None, Option(help="Port to listen at. Default: 8000.")] = None,
    device: Device = None,
    token_file: Annotated[Path | None, Option(help="File with the token for inference; or CTTA_INFER_TOKEN.")] = None,
    manage_token_file: Annotated[
        Path | None, Option(help="File with the token for management; or CTTA_MANAGE_TOKEN.")
    ] = None,
    no_token: Annotated[bool, Option("--no-token", help="Listen to other machines without tokens.")] = False,
    certificate: Annotated[str | None, Option(help="File with a certificate, for TLS.")] = None,
    key: Annotated[str | None, Option(help="File with its private key.")] = None,
    ray: Annotated[str | None, Option(metavar="ADDRESS", help="Serve on a Ray cluster: auto, or HOST:PORT.")] = None,
    homes: Annotated[int, Option(help="Homes of streams on the cluster.")] = 2,
    settings: Annotated[bool, Option("--settings", help="List all settings of the service, and end.")] = False,
) -> None:
    """Serve a model that adapts to every stream of requests (Open Inference Protocol V2), with a live page at /.

    Each sequence_id is a stream with a state of its own. Ctrl-C answers what waits, and saves all streams.
    """
    from ctta.base.fileio import optional_import
    from ctta.experiments.sections import override

    for module in ("fastapi", "uvicorn", "prometheus_client", "python_multipart"):
        optional_import(module, "serve", "ctta serve")
    from ctta.running.memory import keep_freed
    from ctta.serving.house import LocalHouse
    from ctta.serving.logs import set_up_logs
    from ctta.serving.security import Tokens, check_exposure
    from ctta.serving.server import run
    from ctta.serving.settings import ServeSettings

    if settings:
        for name, accepted, default, sentence in ServeSettings.describe():
            say(f"{name}: {sentence} {accepted[0].upper()}{accepted[1:]}; default {default}.")
        return
    given = {
        "model": model,
        "method": method,
        "preset": preset,
        "weights": weights,
        "mean": numbers(mean, "--mean"),
        "std": numbers(std, "--std"),
        "size": size,
        "classes": classes,
        "state": state,
        "host": host,
        "port": port,
        "device": device,
        "certificate": certificate,
        "key": key,
    }
    made = ServeSettings.read(
        config, {**override({}, change or []), **{k: v for k, v in given.items() if v is not None}}
    )
    tokens = Tokens.find(token_file, manage_token_file)
    check_exposure(made.host, tokens, open_to_all=no_token)
    keep_freed()
    set_up_logs(made.log)

    def listening(address: str) -> None:
        say(f"{made.model} with {made.method} at {address}  (the live page; POST {address}v2/models/{made.name}/infer)")
        if made.state is None:
            say("No --state: what streams learn is lost when the service ends.")
        else:
            say(f"A killed process loses at most {made.save_updates} updates, or {made.save_seconds:g} s, of a stream.")

    if ray is not None:
        from ctta.serving.ray_house import serve_on_ray

        serve_on_ray(made, tokens, ray, homes, listening)
    else:
        run(made, tokens, LocalHouse(made), listening)
