import sys,random,torch; sys.path.insert(0,'/var/tmp/scratch_lab18/draft')
import engine as L
from efflib import zoo
from efflib.decoding.sampling import generate
from efflib.decoding.drafts import lookup
from efflib.engine.bills import MACHINES, step_bill
from efflib.engine.engine import Did
m=zoo.load("draft"); r=random.Random(0); text=zoo.calibration("code",4,200)[:, :].tolist()
reqs=[([0]+text[i%4][5*(i//4)*0: 10+7*i], 8+5*i) for i in range(6)]
for mod in (m, L.quantized(m,32)):
    want=[generate(mod, torch.tensor([p]), n)[0,len(p):].tolist() for p,n in reqs]
    for kw in ({},{"blocks":14},{"propose":lambda t,n: lookup(torch.tensor(t),min(4,n)).tolist()},{"blocks":14,"propose":lambda t,n: lookup(torch.tensor(t),min(4,n)).tolist()}):
        got,log=L.serve(mod,reqs,**kw); print(got==want,len(log))
M=MACHINES["as_is"]
for p,l in log: assert abs(L.seconds(M,p,l)-step_bill(M,Did([(a,n,c) for a,c,n in p],l,0)).seconds)<1e-15
print([L.best_gamma(M,b,500,.7,16) for b in (1,8,64,256)])
from efflib.quantization.packing import w4a16
from efflib.engine.weights import with_weights
a=with_weights(m,"w4a16")(torch.tensor([[0,5,6]])); b=L.quantized(m,32)(torch.tensor([[0,5,6]])); print((a-b).abs().max(), (a-m(torch.tensor([[0,5,6]]))).abs().max())
