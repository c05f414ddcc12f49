"""Lets `python -m tellers` do what `tellers` does."""

if __name__ == "__main__":
    from .cli import main

    main()
