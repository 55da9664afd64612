"""Entry point: `gpuscale` and `python -m gpuscale`."""

import atexit
import gc
import sys


def main() -> None:
    """Run the command line; a Ctrl-C is exit 130 from the first import on."""
    gc.set_threshold(500_000)  # in one command the collector finds next to nothing,
    atexit.register(gc.freeze)  # nor at its end
    try:
        from gpuscale.cli.failures import mend

        mend()
        if sys.argv[1:] == ["--version"]:
            sys.exit(_version())
        from gpuscale.cli.help import helped

        if not helped(sys.argv[1:]):
            from gpuscale.cli.app import main as run

            run()
    except KeyboardInterrupt:
        sys.exit(130)


def _version() -> int:
    """Answer `--version` before anything heavy is imported."""
    from gpuscale.version import __version__

    try:
        print(f"gpuscale {__version__}", flush=True)
    except OSError as error:
        from gpuscale.cli.app import unwritten

        return unwritten(error)
    return 0


if __name__ == "__main__":
    main()
