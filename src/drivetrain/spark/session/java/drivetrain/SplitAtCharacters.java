package drivetrain;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.regex.PatternSyntaxException;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.StringSplit;
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke;
import org.apache.spark.sql.catalyst.util.ArrayData;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.unsafe.types.UTF8String;
import scala.Function1;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractPartialFunction;

/**
 * Splits a text at characters by looking at its bytes, where `split` has a regular expression that says no more.
 *
 * <p>For each row, Spark decodes the text, compiles the expression, applies it, and encodes the parts. Where the
 * expression is one ASCII character or a class of such (`,`, `\s`, `[ ,;]+`, `\W+`), the parts lie between bytes
 * that can be looked up in a table, as no byte of another character in UTF-8 is one of ASCII.
 *
 * <p>The parts are the same as Spark's. A text that is not UTF-8, whose wrong bytes Spark replaces, is left to it,
 * as is every other expression.
 */
public class SplitAtCharacters extends PlanChange {

  /** Escapes of a class (`\s`), of white space (`\t`) and of a sign (`\|`). */
  private static final String ESCAPE = "\\\\[sSdDwWtnrf\\x21-\\x2f\\x3a-\\x40\\x5b-\\x60\\x7b-\\x7e]";

  /** What a class consists of: ranges, escapes, and characters that mean nothing else there. */
  private static final String OF_A_CLASS =
      "(?:[A-Za-z0-9]-[A-Za-z0-9]|" + ESCAPE + "|[\\x09-\\x0d\\x20-\\x7e&&[^\\[\\]\\\\^&-]])";

  /** One character, as itself, an escape or a class; then whether several in a row are one delimiter. */
  private static final Pattern CHARACTER =
      Pattern.compile(
          "(" + ESCAPE + "|[\\x09-\\x0d\\x20-\\x7e&&[^\\[\\]\\\\^&.$|(){}?*+-]]|\\[\\^?" + OF_A_CLASS + "+\\])(\\+?)");

  /** In a table of bytes: not a delimiter, one of its own, and one together with those that follow. */
  private static final byte NONE = 0;
  private static final byte ALONE = 1;
  private static final byte TOGETHER = 2;

  private static final int ASCII = 128;

  SparkPlan changed(SparkPlan plan) {
    return (SparkPlan) plan.transformExpressions(new OfExpression());
  }

  /** What each byte is for an expression, by its value without sign; null if bytes do not tell. */
  static byte[] delimiters(String expression) {
    Matcher simple = CHARACTER.matcher(expression);
    if (!simple.matches()) {
      return null;
    }
    Pattern character;
    try {
      character = Pattern.compile(simple.group(1));
    } catch (PatternSyntaxException e) {
      return null; // Spark reports it
    }
    byte found = simple.group(2).length() == 0 ? ALONE : TOGETHER;
    byte[] table = new byte[2 * ASCII];
    for (int code = 0; code < ASCII; code++) {
      table[code] = character.matcher(String.valueOf((char) code)).matches() ? found : NONE;
    }
    if (character.matcher("\u00e9").matches()) { // then all characters outside ASCII do
      if (found == ALONE) {
        return null; // each of them would be a delimiter, but each has several bytes
      }
      Arrays.fill(table, ASCII, 2 * ASCII, found);
    }
    return table;
  }

  /** The parts of a text between delimiters, at most `limit` if that is above 0. Called for each row. */
  public static ArrayData parts(UTF8String text, UTF8String expression, int limit, byte[] delimiters) {
    byte[] bytes = text.getBytes();
    int all = 0;
    for (int i = 0; i < bytes.length; i++) {
      all |= bytes[i];
    }
    if (all < 0 && !text.isValid()) {
      return new GenericArrayData((Object[]) text.split(expression, limit));
    }
    List parts = new ArrayList();
    int begin = 0;
    int at = 0;
    while (at < bytes.length && parts.size() != limit - 1) {
      byte kind = delimiters[bytes[at] & 0xff];
      if (kind == NONE) {
        at++;
        continue;
      }
      parts.add(UTF8String.fromBytes(bytes, begin, at - begin));
      at++;
      while (kind == TOGETHER && at < bytes.length && delimiters[bytes[at] & 0xff] != NONE) {
        at++;
      }
      begin = at;
    }
    parts.add(UTF8String.fromBytes(bytes, begin, bytes.length - begin));
    return new GenericArrayData(parts.toArray());
  }

  /** Calls `parts` in place of Spark's `split`, where it can. */
  public static class OfExpression extends AbstractPartialFunction {

    public boolean isDefinedAt(Object expression) {
      return replacement(expression) != null;
    }

    public Object applyOrElse(Object expression, Function1 otherwise) {
      Expression made = replacement(expression);
      return made == null ? otherwise.apply(expression) : made;
    }

    private static Expression replacement(Object expression) {
      if (!(expression instanceof StringSplit)) {
        return null;
      }
      StringSplit split = (StringSplit) expression;
      boolean isConstant = split.regex() instanceof Literal && split.limit() instanceof Literal;
      if (!isConstant || !split.str().dataType().equals(DataTypes.StringType)) {
        return null;
      }
      Object regex = ((Literal) split.regex()).value();
      Object limit = ((Literal) split.limit()).value();
      byte[] table = regex == null || limit == null ? null : delimiters(regex.toString());
      if (table == null) {
        return null;
      }
      List arguments = new ArrayList();
      arguments.add(split.str());
      arguments.add(split.regex());
      arguments.add(split.limit());
      arguments.add(new Literal(table, DataTypes.BinaryType));
      return new StaticInvoke(
          SplitAtCharacters.class, split.dataType(), "parts", CollectionConverters.asScala(arguments).toSeq(),
          CollectionConverters.asScala(new ArrayList()).toSeq(), true, false, true, Option.empty());
    }
  }
}
