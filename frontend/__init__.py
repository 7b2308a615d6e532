"""The user interface: figures (pure), the queries behind them, pages, and the static modules that keep pages live."""
