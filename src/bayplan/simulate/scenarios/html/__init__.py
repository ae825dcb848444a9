"""The result of a simulation as one HTML file that needs no network and runs no script.

    page.py     the document: head, sections, tables
    charts.py   time series and bars as SVG
    axes.py     ticks and labels
    style.py    the style sheet, for light and dark, phone and desktop

Every text from the scenario is escaped. A content security policy permits nothing but the style sheet, which
it names by its hash.
"""
