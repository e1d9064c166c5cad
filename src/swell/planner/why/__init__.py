"""Why, in words: what was asked, what is true, what to do.

    explain      why a job waits, from the latest snapshot and plan
    recorded     why a job ended, or does not run although it has room, from what was recorded then
    unsuitable   why a job could not start even if nobody else were there
    waiting, facts  what can be said of a job that waits, and of the nodes it may use
    asking       the words that a job was written in

Decides nothing: whoever plans does not import it.
"""
