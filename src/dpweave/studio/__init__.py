"""The studio: a page on this machine for the whole way from a database to a copy.

Lives here:
  - ``server``: the HTTP server, its addresses and headers. ``doorkeeper``: who may ask: token, cookie, Host, Origin.
  - ``workbench``: what the page can do, one method for each; it holds the only state there is.
  - ``plan_file``: the plan as a person's file: comments kept, undo, changes by others noticed.
    ``plan_edits``: one change of a plan, in its text. ``plan_view``: what the page shows of a plan.
  - ``outlook``: what the page says of epsilon and delta. ``steps``: commands that the page runs, as child processes.
  - ``page.html``, ``studio.css``, ``studio.js``: the page itself. It asks nobody but this server.

Does not live here: anything that computes. The page calls the library for every figure and the command line for every
step that spends or writes. No row is ever sent to it.

Start with ``workbench``.
"""
