package drivetrain;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.AbstractFunction1;
import scala.runtime.BoxedUnit;

/**
 * A change of the plan of each batch, as an extension of Spark: a subclass is named in `spark.sql.extensions`.
 *
 * <p>It has its place among Spark's own rules when exchanges are planned and the watermarks of the batch are known,
 * and the code of stages is not generated yet.
 */
public abstract class PlanChange extends AbstractFunction1 {

  /** The plan that takes the place of this one, whose children are changed already; or this one. */
  abstract SparkPlan changed(SparkPlan plan);

  /** Spark calls it with the extensions of a new session. */
  public Object apply(Object extensions) {
    ((SparkSessionExtensions) extensions).injectColumnar(new Injected(this));
    return BoxedUnit.UNIT;
  }

  /** Makes the rule of a session. */
  public static class Injected extends AbstractFunction1 {

    private final PlanChange of;

    Injected(PlanChange of) {
      this.of = of;
    }

    public Object apply(Object session) {
      return new BeforeCodeIsGenerated(of);
    }
  }

  /** The rule's place among Spark's own. */
  public static class BeforeCodeIsGenerated extends ColumnarRule {

    private final PlanChange of;

    BeforeCodeIsGenerated(PlanChange of) {
      this.of = of;
    }

    public Rule preColumnarTransitions() {
      return new Rewriting(of);
    }
  }

  /** The rule: the change of all parts of a plan, from its leaves up. */
  public static class Rewriting extends Rule {

    private final PlanChange of;

    Rewriting(PlanChange of) {
      this.of = of;
    }

    public TreeNode apply(TreeNode plan) {
      return rewritten((SparkPlan) plan);
    }

    private SparkPlan rewritten(SparkPlan plan) {
      List children = new ArrayList();
      boolean isChanged = false;
      for (int i = 0; i < plan.children().length(); i++) {
        SparkPlan child = (SparkPlan) plan.children().apply(i);
        SparkPlan made = rewritten(child);
        isChanged = isChanged || made != child;
        children.add(made);
      }
      return of.changed(
          isChanged ? (SparkPlan) plan.withNewChildren(CollectionConverters.asScala(children).toSeq()) : plan);
    }
  }
}
