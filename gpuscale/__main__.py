"""Entry point: `gpuscale` and `python -m gpuscale`."""

import sys


def main() -> None:
    """Run the command line; `--version` answers before anything heavy is imported."""
    if sys.argv[1:] == ["--version"]:
        from gpuscale.version import __version__

        print(f"gpuscale {__version__}")
        return
    from gpuscale.cli.app import main as run

    run()


if __name__ == "__main__":
    main()
