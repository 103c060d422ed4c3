from drivetrain.api.sql.tokens import tokens_of, NoTokenError
from drivetrain.api.sql.grammar import reach, END
def problem(text):
    try: t=tokens_of(text)
    except NoTokenError as e: return (e.at,e.what)
    n=reach([*(x.types for x in t),(END,)])
    if n is None: return None
    return (t[n].start if n<len(t) else len(text), t[n].text if n<len(t) else "END")
def require_expression(t): pass
